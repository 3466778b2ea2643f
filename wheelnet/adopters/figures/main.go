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
	s := settings{rounds: 25, length: 600 * time.Millisecond, conns: 64, idle: 100_000}
	quick := flag.Bool("quick", false, "short runs, which only show that the program works")
	flag.Parse()
	if *quick {
		s = settings{rounds: 1, length: 50 * time.Millisecond, conns: 4, idle: 1000}
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the program takes only -quick", flag.Arg(0))
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
