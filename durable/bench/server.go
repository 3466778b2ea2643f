package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a Redis server for measurements.
type server struct {
	client *redis.Client
	addr   string
	close  func()
}

// startServer starts a private server, or deletes all data of the named one.
func startServer(ctx context.Context, named string, options ...string) (*server, error) {
	if named != "" {
		s := &server{addr: named, client: redis.NewClient(&redis.Options{Addr: named, PoolSize: 64})}
		s.close = func() { _ = s.client.Close() }
		return s, s.client.FlushAll(ctx).Err()
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is not installed (%w); use -redis to name a server", err)
	}
	for tries := 1; ; tries++ {
		s, err := startPrivate(ctx, path, options...)
		if err == nil || tries == 5 || !errors.Is(err, errEnded) {
			return s, err
		}
	}
}

// errEnded is the error of a server that has exited, for example because another process has taken
// its port.
var errEnded = errors.New("redis-server has ended")

// startPrivate starts a server on a free port.
func startPrivate(ctx context.Context, path string, options ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--maxmemory-policy", "noeviction"}, options...)
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{addr: addr}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: 64})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	s.close = func() {
		_ = s.client.Close()
		_ = cmd.Process.Kill()
		<-ended
		_ = os.RemoveAll(dir)
	}
	if err := s.await(ctx, cmd.Process.Pid, ended); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// await waits until the started server answers. It does not accept the answer of another server on
// the same port.
func (s *server) await(ctx context.Context, pid int, ended <-chan struct{}) error {
	for begin := time.Now(); ; {
		answering, err := s.info(ctx, "server", "process_id")
		if err == nil && int(answering) == pid {
			return nil
		}
		select {
		case <-ended:
			return errEnded
		default:
		}
		if sleep(ctx, 50*time.Millisecond) != nil || time.Since(begin) > time.Minute {
			return fmt.Errorf("redis-server does not answer: %w", cmp.Or(err, errors.New("another server has the port")))
		}
	}
}

// info reads a number from a section of INFO.
func (s *server) info(ctx context.Context, section, field string) (float64, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(`(?m)^` + field + `:([0-9.]+)`).FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("INFO %s has no %s", section, field)
	}
	return strconv.ParseFloat(found[1], 64)
}

var clientCalls = regexp.MustCompile(`cmdstat_(?:eval|evalsha|subscribe|ssubscribe|ping):calls=(\d+)`)

// calls returns the number of commands that clients have sent. Commands within scripts do not
// count.
func (s *server) calls(ctx context.Context) (sum float64, err error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	for _, found := range clientCalls.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(found[1], 64) // digits
		sum += n
	}
	return sum, err
}

// callRate returns how many of these commands arrive per second, measured for the duration over.
func (s *server) callRate(ctx context.Context, over time.Duration) (float64, error) {
	before, err := s.calls(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := sleep(ctx, over); err != nil {
		return 0, err
	}
	after, err := s.calls(ctx)
	return (after - before) / time.Since(start).Seconds(), err
}
