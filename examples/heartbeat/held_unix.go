//go:build unix

package main

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// readHeld reads what the kernel holds of a connection and does not wait for more: 0 and no error
// if there is nothing, io.EOF if the client has closed. It must be called by the goroutine that
// reads from the connection, without a read deadline in the past: with one, package net does not
// ask the kernel at all.
func readHeld(_ net.Conn, raw syscall.RawConn, buf []byte) (n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), buf)
			if !errors.Is(err, syscall.EINTR) {
				return true // done, in any case: false would wait until there is something
			}
		}
	})
	switch {
	case waited != nil:
		return 0, waited
	case errors.Is(err, syscall.EAGAIN):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
