package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
)

// startServer starts a private server, to which only a socket leads, and returns its URL.
func startServer(ctx context.Context) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return "", nil, err
	}
	data := filepath.Join(dir, "data")
	stop = func() {
		_ = runProgram(context.WithoutCancel(ctx), "pg_ctl", "stop", "-D", data, "-m", "immediate") // an error if it does not run
		_ = os.RemoveAll(dir)
	}
	if err = giveToPostgres(dir); err == nil {
		err = runProgram(ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	}
	if err == nil {
		options := fmt.Sprintf("-k %s -c listen_addresses='' -c shared_buffers=256MB", dir)
		err = runProgram(ctx, "pg_ctl", "start", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", options)
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("%w; use -postgres to name a server", err)
	}
	return "postgres://postgres@/postgres?host=" + dir, stop, nil
}

// giveToPostgres makes the account postgres own a folder if this process is root's, as which
// PostgreSQL refuses to run.
func giveToPostgres(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(account.Uid) // digits on systems with a root
	return os.Chown(dir, uid, -1)
}

// runProgram runs one of PostgreSQL's programs. Debian has them outside PATH.
func runProgram(ctx context.Context, name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
			name = found[len(found)-1]
		}
	}
	if os.Getuid() == 0 {
		name, args = "runuser", append([]string{"-u", "postgres", "--", name}, args...)
	}
	// initdb and pg_ctl write to standard error why they failed.
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
