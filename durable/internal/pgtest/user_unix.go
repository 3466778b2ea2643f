//go:build unix

package pgtest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// HandOver makes dir belong to an account as which PostgreSQL and pgbouncer run: they refuse to run
// as root. It returns the attributes of such a process; nil means as this process.
func HandOver(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // this process's attributes
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account = &user.User{Uid: "65534", Gid: "65534"} // an account without rights
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attributes := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return attributes, os.Chown(dir, int(uid), int(gid))
}
