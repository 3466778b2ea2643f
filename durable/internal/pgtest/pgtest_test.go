package pgtest

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// mustQuery returns the rows of a statement in the database postgres.
func mustQuery(t *testing.T, s *Server, sql string) string {
	t.Helper()
	rows, err := query(s, sql)
	require.NoError(t, err)
	return rows
}

// eventually waits until a query returns want.
func eventually(t *testing.T, s *Server, sql, want string) {
	t.Helper()
	require.NoError(t, proctest.Eventually(proctest.Timeout, func() error {
		rows, err := query(s, sql)
		if err == nil && rows != want {
			return assert.AnError
		}
		return err
	}))
}

func TestServerStartsWithItsOptions(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Settings: map[string]string{"work_mem": "5MB", "max_connections": "7", "cluster_name": "it's"}})
	for name, want := range map[string]string{
		"work_mem": "5MB", "max_connections": "7", "cluster_name": "it's", "shared_buffers": "32MB", "fsync": "off",
		"server_encoding": "UTF8", "lc_collate": "C", "unix_socket_directories": "", "data_directory": s.path(""),
	} {
		assert.Equal(t, want, mustQuery(t, s, "SHOW "+name), name)
	}
	assert.True(t, s.Running())
	assert.Contains(t, s.Log(), "ready to accept connections")
	pid, err := os.ReadFile(s.path("postmaster.pid"))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(pid), strconv.Itoa(s.PID())+"\n"))
}

func TestDurableServerSyncs(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Durable: true})
	assert.Equal(t, "on", mustQuery(t, s, "SHOW fsync"))
	assert.Equal(t, "on", mustQuery(t, s, "SHOW full_page_writes"))
}

func TestServersAreSeparate(t *testing.T) {
	t.Parallel()
	Require(t)
	var servers [2]*Server
	var wg sync.WaitGroup
	for i := range servers {
		wg.Go(func() { servers[i] = Start(t, Options{}) })
	}
	wg.Wait()
	assert.NotEqual(t, servers[0].URL(), servers[1].URL())
	mustQuery(t, servers[0], "CREATE TABLE t ()")
	mustQuery(t, servers[1], "CREATE TABLE t ()")
}

func TestRestartKeepsPortAndCommittedRows(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	mustQuery(t, s, "CREATE TABLE t (k text)")
	url := s.URL()
	for _, end := range []struct {
		name string
		do   func()
	}{{"kill", s.Kill}, {"fast", func() { s.Stop(Fast) }}, {"immediate", func() { s.Stop(Immediate) }}, {"none", func() {}}} {
		pid := s.PID()
		mustQuery(t, s, "INSERT INTO t VALUES ('"+end.name+"')")
		end.do()
		assert.Equal(t, end.name == "none", s.Running(), end.name)
		s.Restart()
		assert.True(t, s.Running(), end.name)
		assert.NotEqual(t, pid, s.PID(), end.name)
		assert.Equal(t, url, s.URL(), end.name)
		assert.Equal(t, "1", mustQuery(t, s, "SELECT count(*) FROM t WHERE k = '"+end.name+"'"), end.name)
	}
	assert.Equal(t, 2, strings.Count(s.Log(), "database system was not properly shut down"), "after the kill and the immediate stop")
}

// An idle backend ends with the postmaster, a busy one does not.
func TestKillEndsBackends(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	psql := exec.Command(s.home.program("psql"), "-d", s.URL(), "-c", "DO $$ BEGIN LOOP END LOOP; END $$")
	require.NoError(t, psql.Start())
	eventually(t, s, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO %'", "1")
	backends := children(s.PID())
	assert.Greater(t, len(backends), 3)
	s.Kill()
	s.Kill() // once more is no error
	s.Stop(Fast)
	require.Error(t, psql.Wait())
	for _, id := range backends {
		backend, err := os.FindProcess(id)
		require.NoError(t, err)
		require.NoError(t, proctest.Eventually(proctest.Timeout, func() error {
			if state, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/stat"); err == nil && strings.Contains(string(state), ") Z ") {
				return nil // its new parent never waits for it
			}
			if backend.Signal(syscall.Signal(0)) == nil {
				return assert.AnError
			}
			return nil
		}))
	}
}

func TestPausedServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	impatient := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return exec.CommandContext(ctx, s.home.program("psql"), "-d", s.URL(), "-c", "SELECT 1").Run()
	}
	s.Pause()
	require.Error(t, impatient())
	assert.True(t, s.Running())
	s.Continue()
	mustQuery(t, s, "SELECT 1")
	s.Pause()
	s.Stop(Fast) // does not wait for a Continue
	assert.False(t, s.Running())
	assert.Contains(t, s.Log(), "database system is shut down")
}

func TestPromotedStandbyHasTheRowsOfThePrimary(t *testing.T) {
	t.Parallel()
	primary := Start(t, Options{})
	mustQuery(t, primary, "CREATE TABLE t (k text)")
	standby := primary.Standby(t)
	mustQuery(t, primary, "INSERT INTO t VALUES ('streamed')")
	eventually(t, standby, "SELECT k FROM t", "streamed")
	assert.Equal(t, "on", mustQuery(t, standby, "SHOW transaction_read_only"))

	primary.Kill()
	standby.Promote()
	mustQuery(t, standby, "INSERT INTO t VALUES ('promoted')")
	assert.Equal(t, "streamed\npromoted", mustQuery(t, standby, "SELECT k FROM t"))
}

func TestCommitsWaitForTheSynchronousStandby(t *testing.T) {
	t.Parallel()
	primary := Start(t, Options{})
	standby := primary.SynchronousStandby(t)
	mustQuery(t, primary, "CREATE TABLE t (k int)")
	assert.Equal(t, "sync", mustQuery(t, primary, "SELECT sync_state FROM pg_stat_replication"))
	standby.Pause()
	done := make(chan error, 1)
	go func() {
		_, err := query(primary, "INSERT INTO t VALUES (1)")
		done <- err
	}()
	eventually(t, primary, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "1")
	standby.Continue()
	require.NoError(t, <-done)
	primary.Kill()
	standby.Promote()
	assert.Equal(t, "1", mustQuery(t, standby, "SELECT k FROM t"))
	mustQuery(t, standby, "INSERT INTO t VALUES (2)") // waits for no standby
}

func TestSharedServerHasSeparateDatabases(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	assert.Same(t, s, Shared(t))
	var dropped string
	t.Run("", func(t *testing.T) {
		first, second := s.Database(t), s.Database(t)
		for _, url := range []string{first, second} {
			out, err := exec.Command(s.home.program("psql"), "-d", url, "-c", "CREATE TABLE t ()").CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Equal(t, "1", mustQuery(t, s, "SELECT count(*) FROM pg_database WHERE '"+url+"' LIKE '%/' || datname || '?%'"))
		}
		dropped = first
	})
	assert.Equal(t, "0", mustQuery(t, s, "SELECT count(*) FROM pg_database WHERE '"+dropped+"' LIKE '%/' || datname || '?%'"))
	assert.Panics(t, s.Kill)
	assert.True(t, s.Running())
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
	for _, fault := range []func(*Server){(*Server).Pause, (*Server).Kill} {
		r := &recorder{TB: t}
		s := Start(r, Options{})
		memory := strings.Fields(s.state(6))
		fault(s)
		r.finish()
		assert.Empty(t, r.failures)
		assert.False(t, s.Running())
		assert.True(t, proctest.IsFree(s.port.Number))
		left, err := filepath.Glob(s.path("") + "*")
		require.NoError(t, err)
		assert.Empty(t, left)
		require.Error(t, exec.Command("ipcrm", "-m", memory[1]).Run(), "the shared memory is removed")
	}
}

func TestFailedStartReportsTheLog(t *testing.T) {
	t.Parallel()
	Require(t)
	r := &recorder{TB: t}
	assert.Panics(t, func() { Start(r, Options{Settings: map[string]string{"no_such_setting": "1"}}) })
	assert.Len(t, r.failures, 1)
	_, err := start(Options{Settings: map[string]string{"no_such_setting": "1"}})
	require.ErrorContains(t, err, "no_such_setting")
}

func TestPortInUseIsDetected(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.Stop(Fast)
	l, err := net.Listen("tcp", proctest.Loopback(s.port.Number))
	require.NoError(t, err)
	defer l.Close()
	require.ErrorIs(t, s.run(), errInUse)
}

func TestMissingProgramsSkipOrFailTheTest(t *testing.T) {
	t.Setenv(EnvPrograms, t.TempDir())
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

func TestVersionsAreOrderedAsNumbers(t *testing.T) {
	t.Parallel()
	assert.Less(t, version("/usr/lib/postgresql/9.6/bin/initdb"), version("/usr/lib/postgresql/17/bin/initdb"))
}

// envOrphan makes the test binary start servers and wait to be killed: see
// [TestServersEndWithTheTestBinary].
const envOrphan = "TIMINGWHEEL_PGTEST_ORPHAN"

func TestServersEndWithTheTestBinary(t *testing.T) {
	if os.Getenv(envOrphan) != "" {
		s := Start(t, Options{})
		s.Pause()
		os.Stdout.WriteString("\n" + Shared(t).home.dir + " " + Shared(t).URL() + " " + s.URL() + "\n")
		select {}
	}
	t.Parallel()
	Require(t)
	if !proctest.DiesWithParent {
		t.Skip("this system does not end children with their parents")
	}
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestServersEndWithTheTestBinary$")
	cmd.Env = append(os.Environ(), envOrphan+"=1")
	var out lockedBuffer
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	require.NoError(t, proctest.Eventually(proctest.Timeout, func() error {
		if !strings.HasSuffix(out.String(), "sslmode=disable\n") {
			return assert.AnError
		}
		return nil
	}))
	fields := strings.Fields(out.String())
	require.Len(t, fields, 3)
	require.DirExists(t, fields[0])
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	for _, url := range fields[1:] {
		addr, _, _ := strings.Cut(strings.TrimPrefix(url, "postgres://postgres@"), "/")
		require.NoError(t, proctest.Eventually(proctest.Timeout, func() error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return nil
			}
			conn.Close()
			return assert.AnError
		}), "the server is still there")
	}
	require.NoError(t, proctest.Eventually(proctest.Timeout, func() error {
		if _, err := os.Stat(fields[0]); err == nil {
			return assert.AnError
		}
		return nil
	}), "the files are still there")
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
