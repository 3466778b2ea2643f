// Package redistest starts Redis servers for tests: a single server, a master with a replica and
// sentinels, or a cluster.
//
// Every server has a free loopback port and its own directory, and ends with its test. On Linux it
// also ends with the test binary, however the binary ends.
//
// The methods that inject faults report errors with the test's Errorf, so they may be called from
// any goroutine.
package redistest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// EnvRequire is the name of an environment variable. If it is "1", a missing program such as
// redis-server fails the test. Otherwise the test is skipped.
const EnvRequire = "TIMINGWHEEL_REQUIRE_REDIS"

// startTimeout limits how long servers take to become ready and to end.
const startTimeout = proctest.Timeout

// ClientTimeout limits how long clients wait for a running server, which may be unresponsive for
// seconds on an overloaded machine. The system reports a server that has ended immediately.
const ClientTimeout = time.Minute

// steadyTimeout is the time without an answer after which servers consider another server down,
// unless a server was just killed. It is long, so that no server takes over from a server that is
// unresponsive on an overloaded machine.
const steadyTimeout = time.Minute

// Require skips or fails the test if redis-server is not in PATH: see [EnvRequire].
func Require(t testing.TB) {
	t.Helper()
	requireProgram(t, "redis-server")
}

// requireProgram returns the path of a program, or skips or fails the test.
func requireProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil && proctest.CanSignal:
		return path
	case err == nil:
		t.Skipf("redistest: processes cannot be stopped and continued on this system")
	case os.Getenv(EnvRequire) == "1":
		t.Fatalf("redistest: %v, and %s=1 requires it", err, EnvRequire)
	default:
		t.Skipf("redistest: %v", err)
	}
	return ""
}

// AwaitDisconnects lets the end of the test wait until a simulated server has no connections. A
// call in progress may outlast its context, and would find a closed server without state. Clients
// are to be closed before: by a later Cleanup of the test, or by the test.
func AwaitDisconnects(t testing.TB, server interface{ CurrentConnectionCount() int }) {
	t.Helper()
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return server.CurrentConnectionCount() == 0 }, startTimeout, time.Millisecond)
	})
}

// Options configures [Start]. The zero value is a server that stores nothing on disk.
type Options struct {
	// AppendOnly makes the server write an append-only file, which [Server.Restart] reads.
	AppendOnly bool

	// AppendFsync is "always", "everysec" or "no". Empty means the server's default, "everysec".
	AppendFsync string

	// MaxMemory is the limit in bytes above which the server rejects writes (noeviction). 0 means
	// no limit.
	MaxMemory int64

	// Clock is the server's wall clock. Nil means the machine's clock.
	Clock *Clock

	// ExtraArgs are additional arguments of the server, such as "--hz", "100". They override the
	// other fields.
	ExtraArgs []string
}
