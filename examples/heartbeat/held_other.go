//go:build !unix

package main

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// readHeld reads what the kernel holds of a connection; see the version for Unix. Where a
// connection cannot be read without waiting, a short wait stands in for it.
func readHeld(conn net.Conn, _ syscall.RawConn, buf []byte) (int, error) {
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	defer conn.SetReadDeadline(time.Time{})
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	return n, err
}
