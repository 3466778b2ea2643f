//go:build unix

package keyed

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
)

const monitorEnv = "KEYED_TEST_MONITOR"

// A monitor process is stopped by SIGSTOP for longer than the timeout. Its members beat over TCP
// all the time, and the beats wait in its sockets. With grace it reports none of them.
func TestGraceSparesLiveMembersAfterSIGSTOP(t *testing.T) {
	const members = 300
	if os.Getenv(monitorEnv) != "" {
		runMonitor(t)
		return
	}
	t.Parallel()
	command := exec.Command(os.Args[0], "-test.run=^TestGraceSparesLiveMembersAfterSIGSTOP$")
	command.Env = append(os.Environ(), monitorEnv+"=1")
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill() })
	var address string
	_, err = fmt.Fscanln(stdout, &address)
	require.NoError(t, err)

	var beating sync.WaitGroup
	end := make(chan struct{})
	for range members {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		beating.Go(func() {
			defer c.Close()
			for {
				_, err := c.Write([]byte{1})
				assert.NoError(t, err)
				select {
				case <-end:
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	time.Sleep(time.Second)
	require.NoError(t, command.Process.Signal(syscall.SIGSTOP))
	time.Sleep(3 * time.Second)
	require.NoError(t, command.Process.Signal(syscall.SIGCONT))
	time.Sleep(time.Second)
	require.NoError(t, stdin.Close())
	var joined, spared, silent int
	_, err = fmt.Fscanln(stdout, &joined, &spared, &silent)
	require.NoError(t, err)
	close(end)
	beating.Wait()
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, command.Wait())
	require.Equal(t, members, joined)
	require.Zero(t, spared, "live members are reported")
	t.Logf("%d of %d members are reported without grace", silent, members) // chance decides
}

// runMonitor listens for beats until the standard input ends. It prints its address, and then how
// many members it has seen and how many it has reported with and without grace.
func runMonitor(t *testing.T) {
	var reports [2]atomic.Int64
	var monitors [2]*Heartbeats[int]
	for i := range monitors {
		h, err := NewHeartbeats(timingwheel.Options{}, 2*time.Second, func(keys []int) { reports[i].Add(int64(len(keys))) })
		require.NoError(t, err)
		defer h.Stop()
		monitors[i] = h
	}
	monitors[0].Grace = time.Minute
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	fmt.Println(l.Addr())
	var joined atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			key := int(joined.Inc())
			go func() {
				for buf := make([]byte, 64); ; {
					if _, err := c.Read(buf); err != nil {
						return
					}
					monitors[0].Beat(key)
					monitors[1].Beat(key)
				}
			}()
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(joined.Load(), reports[0].Load(), reports[1].Load())
	require.NoError(t, l.Close())
}
