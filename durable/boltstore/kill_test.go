package boltstore_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/boltstore"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// childFile is the environment variable that makes the test binary a child of the kill test, and
// names the file.
const childFile = "BOLTSTORE_TEST_CHILD"

// TestMain raises the number of parallel tests above the number of processors, because most tests
// wait for fsyncs, for leases to end, or for a stall.
func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := runChild(path, os.Getenv(childFile+"_ROUND")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil { // -parallel overrides it
		panic(err)
	}
	os.Exit(m.Run())
}

// A process is killed in the middle of its commits several times. Each time the file has every
// change that the process reported as synced.
func TestKilledProcessLosesNothingConfirmed(t *testing.T) {
	t.Parallel()
	rounds := max(2, testscale.Size(5)) // the second round finds a file
	if testing.Short() {
		rounds = 1
	}
	k := killer{path: filepath.Join(t.TempDir(), "queue.db"), reported: make(map[string]string), tokens: make(map[string]uint64)}
	for i := range rounds {
		k.round(t, strconv.Itoa(i), time.Duration(60+37*i)*time.Millisecond)
	}
	assert.Greater(t, len(k.reported), rounds, "messages")
}

// killer runs children on one file, and keeps the last report of each message that they have
// printed.
type killer struct {
	path     string
	reported map[string]string // by id: "put", "ending", "acked" or "cancelled"
	tokens   map[string]uint64 // the last token of each partition
}

// round starts a child, kills it some time after it has reported two messages, and checks the file.
// The wait for the first commits has no limit of its own.
func (k *killer) round(t *testing.T, name string, work time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+k.path, childFile+"_ROUND="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var once sync.Once
	for before := len(k.reported); lines.Scan(); {
		k.record(t, lines.Text())
		if len(k.reported) >= before+2 {
			once.Do(func() { time.AfterFunc(work, func() { _ = cmd.Process.Kill() }) })
		}
	}
	require.Error(t, cmd.Wait(), "the child ended by itself")
	k.check(t)
}

// record records one line of a child: a state and an id, or a partition and a token. The last line
// may be cut off.
func (k *killer) record(t *testing.T, line string) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) < 3 || f[len(f)-1] != "." {
		return
	}
	if f[0] != "token" {
		k.reported[f[1]] = f[0]
		return
	}
	token, err := strconv.ParseUint(f[2], 10, 64)
	require.NoError(t, err)
	require.Greater(t, token, k.tokens[f[1]], "tokens rise")
	k.tokens[f[1]] = token
}

// check opens the file. Each message that was put must be there, unless its end was under way. No
// message that has ended may be there.
func (k *killer) check(t *testing.T) {
	t.Helper()
	s, err := boltstore.Open(k.path, boltstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	q, err := s.Open(t.Context(), childConfig)
	require.NoError(t, err)
	lost := 0
	for id, state := range k.reported {
		_, err := q.Get(t.Context(), driver.PartitionOf(id, q.Partitions()), id)
		switch state {
		case "put":
			if err != nil {
				require.ErrorIs(t, err, driver.ErrNotFound)
				lost++
			}
		case "ending":
			if err != nil {
				require.ErrorIs(t, err, driver.ErrNotFound)
			}
		default:
			require.ErrorIs(t, err, driver.ErrNotFound, "%s was %s", id, state)
		}
	}
	// A child prints "put" after the put is synced, and "ending" before it asks for the end, so no
	// message that was last reported as put may be missing.
	assert.Zero(t, lost)
	for p := range q.Partitions() {
		report, err := q.(driver.Auditor).Audit(t.Context(), p, false)
		require.NoError(t, err)
		assert.Zero(t, report.Orphans+report.Strays)
		c, err := q.Count(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, report.Records, c.Scheduled+c.Dead)
		assert.Zero(t, c.InFlight)
	}
}

var childConfig = driver.Config{Queue: "orders", Partitions: 2, DeadLimit: 100, DeadBytes: 1 << 30, DeadAge: time.Hour}

// runChild puts, delivers and cancels messages until it is killed, and prints each change that is
// synced.
func runChild(path, round string) error {
	s, err := boltstore.Open(path, boltstore.Options{LockTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	q, err := s.Open(context.Background(), childConfig)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	report := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line + " .")
	}
	errs := make(chan error)
	for worker := range 4 {
		go func() { errs <- childPuts(q, round+"-"+strconv.Itoa(worker), report) }()
	}
	for p := range q.Partitions() {
		go func() { errs <- childDelivers(q, p, report) }()
	}
	return <-errs
}

func childPuts(q driver.Backend, prefix string, report func(string)) error {
	ctx := context.Background()
	for i := 0; ; i++ {
		id := prefix + "-" + strconv.Itoa(i)
		p := driver.PartitionOf(id, q.Partitions())
		if _, err := q.Put(ctx, driver.Put{Partition: p, Items: []driver.PutItem{{ID: id, Delay: time.Duration(i%3) * time.Hour}}}); err != nil {
			return err
		}
		if i%3 == 0 {
			continue // the delivering goroutine prints it
		}
		report("put " + id)
		if i%3 == 1 {
			continue
		}
		report("ending " + id)
		if _, err := q.Apply(ctx, driver.Batch{Partition: p, Op: driver.OpCancel, Changes: []driver.Change{{ID: id}}}); err != nil {
			return err
		}
		report("cancelled " + id)
	}
}

func childDelivers(q driver.Backend, p int, report func(string)) error {
	ctx := context.Background()
	for {
		c, err := q.Claim(ctx, driver.Claim{Partition: p, Max: 8, MaxBytes: 1 << 20, Visibility: time.Hour})
		if err != nil {
			return err
		}
		var changes []driver.Change
		for _, r := range c.Records {
			changes = append(changes, driver.Change{ID: r.ID, Token: r.Token})
			report("token " + strconv.Itoa(p) + " " + strconv.FormatUint(r.Token, 10))
		}
		for _, op := range []driver.Op{driver.OpBegin, driver.OpAck} {
			if _, err := q.Apply(ctx, driver.Batch{Partition: p, Op: op, Visibility: time.Hour, Changes: changes}); err != nil {
				return err
			}
		}
		for _, c := range changes {
			report("acked " + c.ID)
		}
	}
}
