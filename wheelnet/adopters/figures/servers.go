//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// timeout is the timeout of reads, writes and idle connections.
const timeout = 30 * time.Second

// implementations are the implementations of deadlines. With none, the servers set no deadlines.
var implementations = []string{"none", "net", "wheelnet"}

// servers are the servers that are measured, with the request of their clients.
var servers = []struct {
	name    string
	serve   func(l net.Listener, deadlines bool) error
	request string
}{
	{"echo", serveEcho, strings.Repeat("x", 64)},
	{"net/http", serveHTTP, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
	{"fasthttp", serveFastHTTP, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
}

// serve runs a server and prints its address. For each line of its input, serve prints the
// CPU time of the process in nanoseconds. It returns at the end of its input.
func serve(name, impl string) error {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	if impl == "wheelnet" {
		tw, err := timingwheel.New(timingwheel.Options{})
		if err != nil {
			return err
		}
		l = wheelnet.Listener(l, tw)
	}
	for _, s := range servers {
		if s.name == name {
			go s.serve(l, impl != "none") //nolint:errcheck // the clients then fail
		}
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	return nil
}

func serveEcho(l net.Listener, deadlines bool) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go echo(c, deadlines)
	}
}

func echo(c net.Conn, deadlines bool) {
	defer c.Close()
	b := make([]byte, 4096)
	for {
		if deadlines && c.SetReadDeadline(time.Now().Add(timeout)) != nil {
			return
		}
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if deadlines && c.SetWriteDeadline(time.Now().Add(timeout)) != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

func serveHTTP(l net.Listener, deadlines bool) error {
	s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello") //nolint:errcheck // the client then fails
	})}
	if deadlines {
		s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = timeout, timeout, timeout
	}
	return s.Serve(l)
}

func serveFastHTTP(l net.Listener, deadlines bool) error {
	s := fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.WriteString("hello") }} //nolint:errcheck // it writes to a buffer
	if deadlines {
		s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = timeout, timeout, timeout
	}
	return s.Serve(l)
}

// load sends requests over conns connections, one after the other on each. First, load makes a
// request on each connection and prints the address. After it has read a line, it sends requests
// for the given length of time, and prints their number.
func load(name, address string, conns int, length time.Duration) error {
	var request []byte
	for _, s := range servers {
		if s.name == name {
			request = []byte(s.request)
		}
	}
	all := make([]net.Conn, conns)
	size := 0 // of a response
	for i := range all {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write(request); err != nil {
			return err
		}
		if size, err = c.Read(make([]byte, 4096)); err != nil {
			return err
		}
		all[i] = c
	}
	fmt.Println(address)
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	var wg sync.WaitGroup
	counts, errs := make([]int, conns), make([]error, conns)
	end := time.Now().Add(length)
	for i, c := range all {
		wg.Go(func() {
			b := make([]byte, size)
			for time.Now().Before(end) {
				if _, errs[i] = c.Write(request); errs[i] != nil {
					return
				}
				if _, errs[i] = io.ReadFull(c, b); errs[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	total := 0
	for i, n := range counts {
		if errs[i] != nil {
			return errs[i]
		}
		total += n
	}
	fmt.Println(total)
	return nil
}
