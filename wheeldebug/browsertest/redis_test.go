//go:build unix

package browsertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durabledebug"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

func init() {
	stores["redis"] = func(t *testing.T) durable.Store {
		store, _ := startRedis(t)
		return store
	}
}

// startRedis starts a server that listens on a socket in a new directory and is killed when the
// test ends. It skips the test if no server is installed, or fails it if TIMINGWHEEL_REQUIRE_REDIS
// is 1. Package redistest can do more, but only modules below durable can import it.
func startRedis(t *testing.T) (durable.Store, *os.Process) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("TIMINGWHEEL_REQUIRE_REDIS") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "redis") // the path of a socket must be short
	require.NoError(t, err)
	socket := filepath.Join(dir, "redis.sock")
	server := exec.Command(program, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "")
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // reports that the server was killed
		assert.NoError(t, os.RemoveAll(dir))
	})
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	t.Cleanup(func() { _ = client.Close() })
	require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, timeout, 10*time.Millisecond)
	store, err := redisstore.New(client, redisstore.Options{AllowLossOnCrash: true})
	require.NoError(t, err)
	return store, server.Process
}

// The page reports a suspended server within the timeout, and recovers with the server.
func TestQueuePageOfSuspendedServer(t *testing.T) {
	t.Parallel()
	store, server := startRedis(t)
	q := openQueue(t, store, "orders")
	put(t, q, "m", 5, time.Hour)
	p := open(t, queues(&durabledebug.Handler{Timeout: 300 * time.Millisecond}, "orders", q, "second", q), "")
	p.live("orders")
	p.tile("pending", "5messages")
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	p.wait(`document.getElementById('state').dataset.state === 'lost'`)
	assert.Contains(t, p.text("#notice"), "No answer: ")
	assert.Contains(t, p.text("#notice"), "deadline exceeded")
	p.tile("pending", "5messages")
	p.click("#queues button:nth-child(2)")
	p.wait(`document.getElementById('main').hidden`)
	p.click("#queues button:nth-child(1)")
	require.NoError(t, server.Signal(syscall.SIGCONT))
	p.live("orders")
	p.tile("pending", "5messages")
	p.expectProblem("503")
}
