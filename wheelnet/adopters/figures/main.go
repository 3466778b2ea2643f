//go:build linux

// Figures measures the cost of deadlines with package wheelnet and with package net:
//
//	go -C wheelnet/adopters run ./figures
//
// It prints the time of a call, the memory of a connection, and the CPU time of a request in
// three servers: an echo server, a net/http server and a fasthttp server. Each server runs without
// deadlines, with deadlines of package net, and with deadlines of wheelnet, in turn. The server has
// one processor to itself, and its clients have another one. With -quick the runs are too short for
// meaningful figures.
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

// settings are the sizes of the measurements.
type settings struct {
	rounds int           // for each server
	length time.Duration // of the load on a server in a round
	conns  int           // connections of the clients
	idle   int           // connections whose memory is measured
}

func run() error {
	if role := os.Getenv(roleVariable); role != "" {
		return runRole(role)
	}
	s := settings{}
	flag.IntVar(&s.rounds, "rounds", 25, "number of `rounds` for each server, at least 1")
	flag.DurationVar(&s.length, "for", 600*time.Millisecond, "`duration` of the load on a server in a round, at least 10ms")
	flag.IntVar(&s.conns, "conns", 64, "`number` of connections of the clients, 1 to 1000")
	flag.IntVar(&s.idle, "idle", 100_000, "`number` of connections whose memory is measured, at least 1")
	quick := flag.Bool("quick", false, "short runs, which only show that the program works")
	flag.Parse()
	if *quick {
		s = settings{rounds: 1, length: 50 * time.Millisecond, conns: 4, idle: 1000}
	}
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; the program takes only options", flag.Arg(0))
	case s.rounds < 1:
		return fmt.Errorf("-rounds is %d; it must be at least 1", s.rounds)
	case s.length < 10*time.Millisecond:
		return fmt.Errorf("-for is %v; it must be at least 10ms", s.length)
	case s.conns < 1 || s.conns > 1000:
		return fmt.Errorf("-conns is %d; it must be from 1 to 1000", s.conns)
	case s.idle < 1:
		return fmt.Errorf("-idle is %d; it must be at least 1", s.idle)
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
