package redistest

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

func TestServerStartsWithItsOptions(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{MaxMemory: 64 << 20, ExtraArgs: []string{"--hz", "33"}})
	c := s.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	assert.Equal(t, "v", c.Get(t.Context(), "k").Val())
	assert.Equal(t, map[string]string{"hz": "33"}, c.ConfigGet(t.Context(), "hz").Val())
	assert.Equal(t, map[string]string{"maxmemory": "67108864"}, c.ConfigGet(t.Context(), "maxmemory").Val())
	assert.Equal(t, map[string]string{"maxmemory-policy": "noeviction"}, c.ConfigGet(t.Context(), "maxmemory-policy").Val())
	assert.Equal(t, map[string]string{"dir": s.Dir()}, c.ConfigGet(t.Context(), "dir").Val())
	assert.True(t, s.Running())
	assert.Contains(t, s.Log(), "Ready to accept connections")
	assert.Contains(t, c.Info(t.Context(), "server").Val(), "process_id:"+strconv.Itoa(s.PID())+"\r\n")
}

func TestServersHaveDifferentPorts(t *testing.T) {
	t.Parallel()
	Require(t)
	var (
		mu    sync.Mutex
		addrs = map[string]bool{}
		wg    sync.WaitGroup
	)
	for range 6 {
		wg.Go(func() {
			s := Start(t, Options{})
			mu.Lock()
			defer mu.Unlock()
			addrs[s.Addr()] = true
		})
	}
	wg.Wait()
	assert.Len(t, addrs, 6)
}

func TestRestartKeepsPortAndFolder(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{AppendOnly: true, AppendFsync: "always"})
	addr, c := s.Addr(), s.Client(t)
	for _, end := range []struct {
		name string
		do   func()
	}{{"kill", s.Kill}, {"stop", s.Stop}, {"none", func() {}}} {
		pid := s.PID()
		require.NoError(t, c.Set(t.Context(), end.name, "kept", 0).Err(), end.name)
		end.do()
		assert.Equal(t, end.name == "none", s.Running(), end.name)
		s.Restart()
		assert.True(t, s.Running(), end.name)
		assert.NotEqual(t, pid, s.PID(), end.name)
		assert.Equal(t, addr, s.Addr(), end.name)
		assert.Equal(t, "kept", c.Get(t.Context(), end.name).Val(), end.name)
	}
}

func TestKillLosesWhatIsNotOnDisk(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	c := s.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	s.Kill()
	s.Kill() // once more is no error
	s.Stop()
	require.Error(t, c.Get(t.Context(), "k").Err())
	s.Restart()
	assert.ErrorIs(t, c.Get(t.Context(), "k").Err(), redis.Nil)
}

func TestPausedServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	impatient := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
	defer impatient.Close()
	s.Pause()
	require.Error(t, impatient.Get(t.Context(), "k").Err())
	assert.True(t, s.Running())
	s.Continue()
	assert.Equal(t, "v", s.Client(t).Get(t.Context(), "k").Val())
	s.Pause()
	s.Stop() // does not wait for a Continue
	assert.False(t, s.Running())
}

// recorder is a test that only records failures.
type recorder struct {
	testing.TB
	cleanups []func()
	failures []string
	skipped  bool
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool              { return len(r.failures) > 0 }
func (r *recorder) Errorf(f string, a ...any) { r.failures = append(r.failures, f) }
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Fatalf(f string, a ...any) { r.failures = append(r.failures, f); panic(r) }
func (r *recorder) Skipf(string, ...any)      { r.skipped = true; panic(r) }
func (r *recorder) finish() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func TestServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	Require(t)
	r := &recorder{TB: t, failures: []string{"a failure of the test"}}
	s := Start(r, Options{})
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	r.finish()
	assert.False(t, s.Running())
	assert.True(t, proctest.IsFree(s.port.Number))
}

func TestFailedStartReportsTheLog(t *testing.T) {
	t.Parallel()
	Require(t)
	r := &recorder{TB: t}
	defer r.finish()
	assert.Panics(t, func() { Start(r, Options{ExtraArgs: []string{"--no-such-option", "1"}}) })
	assert.Len(t, r.failures, 1)
}

func TestMissingServerSkipsOrFailsTheTest(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, test := range []struct {
		require string
		fails   bool
	}{{"", false}, {"0", false}, {"1", true}} {
		t.Setenv(EnvRequire, test.require)
		r := &recorder{TB: t}
		assert.Panics(t, func() { Require(r) })
		assert.Equal(t, test.fails, r.Failed(), test.require)
		assert.Equal(t, !test.fails, r.skipped, test.require)
	}
}

func TestAddressInUseIsDetected(t *testing.T) {
	t.Parallel()
	Require(t)
	s := &Server{t: t, program: "redis-server", dir: t.TempDir()}
	t.Cleanup(s.end)
	taken, err := proctest.ReservePort()
	require.NoError(t, err)
	defer taken.Release()
	l, err := net.Listen("tcp", proctest.Loopback(taken.Number))
	require.NoError(t, err)
	defer l.Close()
	s.config = s.dir + "/redis.conf"
	require.NoError(t, os.WriteFile(s.config, []byte("bind 127.0.0.1\nport "+strconv.Itoa(taken.Number)+"\n"), 0o600))
	s.port = taken
	s.control = redis.NewClient(controlOptions(proctest.Loopback(taken.Number)))
	require.ErrorIs(t, s.run(), errAddressInUse)
}

// envOrphan makes the test binary start a server and wait to be killed: see
// [TestServerEndsWithTheTestBinary].
const envOrphan = "TIMINGWHEEL_REDISTEST_ORPHAN"

func TestServerEndsWithTheTestBinary(t *testing.T) {
	if os.Getenv(envOrphan) != "" {
		s := Start(t, Options{})
		os.Stdout.WriteString("\naddr=" + s.Addr() + "\n")
		select {}
	}
	t.Parallel()
	Require(t)
	if !proctest.DiesWithParent {
		t.Skip("this system does not end children with their parents")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestServerEndsWithTheTestBinary$")
	cmd.Env = append(os.Environ(), envOrphan+"=1", "TMPDIR="+t.TempDir())
	var out lockedBuffer
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	require.NoError(t, proctest.Eventually(30*time.Second, func() error {
		if !strings.Contains(out.String(), "addr=") || !strings.HasSuffix(out.String(), "\n") {
			return assert.AnError
		}
		return nil
	}))
	_, addr, _ := strings.Cut(strings.TrimSpace(out.String()), "addr=")
	c := redis.NewClient(controlOptions(addr))
	defer c.Close()
	require.NoError(t, c.Ping(t.Context()).Err())
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.NoError(t, proctest.Eventually(30*time.Second, func() error {
		if c.Ping(t.Context()).Err() == nil {
			return assert.AnError
		}
		return nil
	}), "the server is still there")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
