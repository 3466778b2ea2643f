//go:build !unix

package main

import (
	"errors"
	"math"
	"net"
	"os"
	"syscall"
	"time"
)

// raiseFileLimit does nothing, because only Unix limits the number of sockets in this way.
func raiseFileLimit(uint64) (uint64, error) { return math.MaxUint64, nil }

// readAvailable waits 20 ms for data, because here a connection cannot be read without waiting. For
// its results see the version for Unix.
func readAvailable(conn net.Conn, _ syscall.RawConn, buf []byte) (int, error) {
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	defer conn.SetReadDeadline(time.Time{})
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	return n, err
}
