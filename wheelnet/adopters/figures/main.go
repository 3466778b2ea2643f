//go:build linux

// Figures measures what the deadlines of package wheelnet cost beside those of package net:
//
//	cd wheelnet/adopters && GOWORK=off go run ./figures
//
// It prints the time of a call, and the processor time of a request in three servers: one that
// echoes, one of net/http and one of fasthttp. Each server runs without deadlines, with those of
// package net and with those of wheelnet, in turn. The server has one processor to itself and the
// clients have another one. With -quick everything is so short that the figures mean nothing.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// settings say how much is measured.
type settings struct {
	rounds int           // of each server
	length time.Duration // of the load on each server in a round
	conns  int           // of the clients
	idle   int           // connections whose memory is measured
}

func run() error {
	if role := os.Getenv(roleVariable); role != "" {
		return play(role)
	}
	s := settings{}
	flag.IntVar(&s.rounds, "rounds", 25, "rounds of each server, at least 1")
	flag.DurationVar(&s.length, "for", 600*time.Millisecond, "length of the load on each server in a round, at least 10ms")
	flag.IntVar(&s.conns, "conns", 64, "connections of the clients, 1 to 1000")
	flag.IntVar(&s.idle, "idle", 100_000, "connections whose memory is measured, at least 1")
	quick := flag.Bool("quick", false, "only see that it works")
	flag.Parse()
	if *quick {
		s = settings{rounds: 1, length: 50 * time.Millisecond, conns: 4, idle: 1000}
	}
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unknown argument %q: only flags are accepted", flag.Arg(0))
	case s.rounds < 1:
		return fmt.Errorf("-rounds %d: at least 1 is accepted", s.rounds)
	case s.length < 10*time.Millisecond:
		return fmt.Errorf("-for %v: at least 10ms is accepted", s.length)
	case s.conns < 1 || s.conns > 1000:
		return fmt.Errorf("-conns %d: 1 to 1000 are accepted", s.conns)
	case s.idle < 1:
		return fmt.Errorf("-idle %d: at least 1 is accepted", s.idle)
	}
	fmt.Printf("%s/%s, %s, %d processors\n\n", runtime.GOOS, runtime.GOARCH, runtime.Version(), runtime.NumCPU())
	if err := printCalls(*quick); err != nil {
		return err
	}
	if err := printMemory(s.idle); err != nil {
		return err
	}
	return printRequests(s)
}
