package main

import (
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// filesBeside is how many files this process needs beside those of its connections: the standard
// ones, the poller's, the listener, and some room.
const filesBeside = 32

// fitFiles raises the limit of open files as far as the connections need it, and makes do with
// fewer connections if it cannot.
func fitFiles(cfg *config, w io.Writer) error {
	need := filesFor(cfg.conns)
	got, err := raiseFiles(need)
	if err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if got >= need {
		return nil
	}
	conns := connsFor(got)
	if conns < 1 {
		return fmt.Errorf("only %d files may be open here (ulimit -n): one connection needs %d", got, filesFor(1))
	}
	fmt.Fprintf(w, "note: %s connections need %s open files, but this process gets only %s (ulimit -n):\n"+
		"      running with %s connections\n", figures.Comma(cfg.conns), figures.Comma(int(need)), figures.Comma(int(got)), figures.Comma(conns))
	cfg.conns = conns
	return nil
}

// filesFor returns how many files so many connections need: two each, the server's and the
// client's.
func filesFor(conns int) uint64 { return 2*uint64(conns) + filesBeside }

// connsFor is the inverse of filesFor.
func connsFor(files uint64) int {
	if files < filesBeside {
		return 0
	}
	return int(min((files-filesBeside)/2, maxConns))
}
