package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
)

// startServer starts a private server, to which only a socket leads, and returns its URL.
func startServer(ctx context.Context) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return "", nil, err
	}
	data := filepath.Join(dir, "data")
	stop = func() {
		_ = runProgram(context.WithoutCancel(ctx), dir, "pg_ctl", "stop", "-D", data, "-m", "immediate") // an error if it does not run
		_ = os.RemoveAll(dir)
	}
	err = runProgram(ctx, dir, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err == nil {
		options := fmt.Sprintf("-k %s -c listen_addresses='' -c shared_buffers=256MB", dir)
		err = runProgram(ctx, dir, "pg_ctl", "start", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", options)
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("%w; use -postgres to name a server", err)
	}
	return "postgres://postgres@/postgres?host=" + dir, stop, nil
}

// runProgram runs one of PostgreSQL's programs in a folder, which it may change. The programs are
// those that tests use: see pgtest.EnvPrograms.
func runProgram(ctx context.Context, dir, name string, args ...string) error {
	programs, err := pgtest.Programs()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(programs, name), args...)
	cmd.Dir = dir
	if cmd.SysProcAttr, err = pgtest.HandOver(dir); err != nil {
		return err
	}
	// initdb and pg_ctl write to standard error why they failed.
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
