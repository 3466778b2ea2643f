//go:build linux

package main

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// connKinds are the kinds of connections whose calls are compared.
var connKinds = []struct {
	name string
	wrap func(net.Conn, *timingwheel.TimingWheel) net.Conn
}{
	{"net", func(c net.Conn, _ *timingwheel.TimingWheel) net.Conn { return c }},
	{"wheelnet", wheelnet.Conn},
}

// operations set and clear a deadline. They return the first error.
var operations = []struct {
	name string
	do   func(c net.Conn, deadline time.Time) error
}{
	{"set", func(c net.Conn, deadline time.Time) error { return c.SetReadDeadline(deadline) }},
	{"set and clear", func(c net.Conn, deadline time.Time) error {
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
		return c.SetReadDeadline(time.Time{})
	}},
	{"past and clear", func(c net.Conn, _ time.Time) error {
		if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
			return err
		}
		return c.SetReadDeadline(time.Time{})
	}},
}

// printCalls prints the nanoseconds of each operation. The deadlines are ascending. Computing them
// does not read the clock.
func printCalls(quick bool) error {
	calls := 5_000_000
	if quick {
		calls = 1000
	}
	fmt.Println("nanoseconds of a call          net   wheelnet")
	for _, op := range operations {
		for _, goroutines := range []int{1, 2} {
			var took [2]time.Duration
			for round := range 3 {
				for i, kind := range connKinds {
					d, err := timeCalls(op.do, kind.wrap, goroutines, calls)
					if err != nil {
						return err
					}
					if round == 0 || d < took[i] {
						took[i] = d
					}
				}
			}
			per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(calls*goroutines) }
			fmt.Printf("%-16s %d goroutine%-1s %6.1f %10.1f\n", op.name, goroutines, "s"[:goroutines-1], per(took[0]), per(took[1]))
		}
	}
	fmt.Println()
	return nil
}

// timeCalls returns the time that goroutines take for calls operations each. Each goroutine has its
// own connection.
func timeCalls(
	do func(net.Conn, time.Time) error, wrap func(net.Conn, *timingwheel.TimingWheel) net.Conn, goroutines, calls int,
) (time.Duration, error) {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return 0, err
	}
	defer tw.Stop()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	conns := make([]net.Conn, goroutines)
	for i := range conns {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return 0, err
		}
		defer c.Close()
		conns[i] = wrap(c, tw)
	}
	errs := make(chan error, goroutines)
	begin := time.Now()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			deadline := begin.Add(time.Hour)
			for range calls {
				deadline = deadline.Add(time.Nanosecond)
				if err := do(c, deadline); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	close(errs)
	return took, <-errs
}

// noopConn is a connection that does nothing.
type noopConn struct{ net.Conn }

func (noopConn) SetDeadline(time.Time) error      { return nil }
func (noopConn) SetReadDeadline(time.Time) error  { return nil }
func (noopConn) SetWriteDeadline(time.Time) error { return nil }
func (noopConn) Close() error                     { return nil }

// printMemory prints the bytes that a connection of wheelnet with deadlines takes, without its
// inner connection.
func printMemory(n int) error {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return err
	}
	defer tw.Stop()
	conns := make([]net.Conn, n)
	inner := make([]noopConn, n)
	before := heap()
	for i := range conns {
		conns[i] = wheelnet.Conn(&inner[i], tw)
		if err := conns[i].SetDeadline(time.Now().Add(time.Hour)); err != nil {
			return err
		}
	}
	fmt.Printf("bytes of a connection with deadlines, beyond package net's: %d\n\n", int(heap()-before)/n)
	for _, c := range conns {
		c.Close()
	}
	runtime.KeepAlive(inner)
	return nil
}

// heap returns the bytes of live heap objects.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
