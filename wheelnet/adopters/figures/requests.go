//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables of a child process.
const (
	roleVariable   = "FIGURES_ROLE"
	pinnedVariable = "FIGURES_PINNED"
)

// printRequests prints the CPU time of a request in each server, with each implementation.
func printRequests(s settings) error {
	fmt.Printf("server's CPU time of a request, µs: median of %d rounds of %v, %d connections\n", s.rounds, s.length, s.conns)
	fmt.Println("            none     net  wheelnet   net/none  wheelnet/none  wheelnet/net")
	for _, server := range servers {
		took := make([][]float64, len(implementations))
		for round := range s.rounds {
			for i := range implementations {
				i = (i + round) % len(implementations) // each round begins with another one
				micros, err := measure(server.name, implementations[i], s)
				if err != nil {
					return fmt.Errorf("server %s, deadlines %s: %w", server.name, implementations[i], err)
				}
				took[i] = append(took[i], micros)
			}
		}
		none, std, wheel := median(took[0]), median(took[1]), median(took[2])
		fmt.Printf("%-9s %6.2f  %6.2f  %8.2f   %8.3f  %13.3f  %12.3f\n", server.name, none, std, wheel, std/none, wheel/none, wheel/std)
	}
	return nil
}

func median(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// measure runs a server and its clients, and returns the CPU time of a request in
// microseconds.
func measure(kind, impl string, s settings) (float64, error) {
	server, err := start("serve "+kind+" "+impl, 0)
	if err != nil {
		return 0, err
	}
	defer server.end()
	address, err := server.line()
	if err != nil {
		return 0, err
	}
	clients, err := start(fmt.Sprintf("load %s %s %d %d", kind, address, s.conns, s.length), runtime.NumCPU()-1)
	if err != nil {
		return 0, err
	}
	defer clients.end()
	if _, err = clients.line(); err != nil { // until each connection has had a response
		return 0, err
	}
	before, err := server.query()
	if err != nil {
		return 0, err
	}
	requests, err := clients.query()
	if err != nil {
		return 0, err
	}
	after, err := server.query()
	if err != nil {
		return 0, err
	}
	return (after - before) / 1000 / requests, nil
}

// child is a child process that runs a role.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a child process on one processor.
func start(role string, processor int) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+role, pinnedVariable+"="+strconv.Itoa(processor))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// line returns the next line that the process prints.
func (c *child) line() (string, error) {
	s, err := c.out.ReadString('\n')
	if err != nil {
		return "", errors.New("the process has ended")
	}
	return strings.TrimSpace(s), nil
}

// query sends an empty line and returns the number that the process prints.
func (c *child) query() (float64, error) {
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		return 0, err
	}
	s, err := c.line()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(s, 64)
}

// end ends the process, which returns when its input is closed.
func (c *child) end() {
	c.in.Close()
	c.cmd.Wait() //nolint:errcheck // the process prints its error
}

// runRole is the main function of a child process.
func runRole(role string) error {
	if err := pin(); err != nil {
		return err
	}
	switch f := strings.Fields(role); f[0] {
	case "serve":
		return serve(f[1], f[2])
	case "load":
		conns, _ := strconv.Atoi(f[3])
		length, _ := strconv.ParseInt(f[4], 10, 64)
		return load(f[1], f[2], conns, time.Duration(length))
	}
	return fmt.Errorf("unknown role %q", role)
}

// pin restarts the process on the processor that the environment names. All threads of the new
// process inherit the affinity.
func pin() error {
	processor := os.Getenv(pinnedVariable)
	if processor == "" {
		return nil
	}
	n, err := strconv.Atoi(processor)
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(n)
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processor %d: %w", n, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Unsetenv(pinnedVariable); err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}
