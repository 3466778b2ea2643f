package boltstore_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/boltstore"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// childFile is an environment variable. It makes the test binary a child of the kill test, and
// names the file.
const childFile = "BOLTSTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := runChild(path, os.Getenv(childFile+"_ROUND")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A process is killed in the middle of its commits several times. Each time the file has all that
// the process reported as safe.
func TestKilledProcessLosesNothingConfirmed(t *testing.T) {
	t.Parallel()
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	k := killer{path: filepath.Join(t.TempDir(), "queue.db"), said: make(map[string]string), tokens: make(map[string]uint64)}
	for i := range rounds {
		k.round(t, strconv.Itoa(i), time.Duration(60+37*i)*time.Millisecond)
	}
	assert.Greater(t, len(k.said), rounds, "messages")
}

// killer runs children on one file, and keeps the last word that they have printed about each
// message.
type killer struct {
	path   string
	said   map[string]string // id → "put", "ending", "acked" or "cancelled"
	tokens map[string]uint64 // the last token of each partition
}

// round starts a child, kills it some time after it has printed words about two messages, and
// checks the file. It waits for the first commits however long they take.
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
	for before := len(k.said); lines.Scan(); {
		k.hear(t, lines.Text())
		if len(k.said) >= before+2 {
			once.Do(func() { time.AfterFunc(work, func() { _ = cmd.Process.Kill() }) })
		}
	}
	require.Error(t, cmd.Wait(), "the child ended by itself")
	k.check(t)
}

// hear records one line of a child: a word and an id, or a partition and a token. The last line may
// be cut off.
func (k *killer) hear(t *testing.T, line string) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) < 3 || f[len(f)-1] != "." {
		return
	}
	if f[0] != "token" {
		k.said[f[1]] = f[0]
		return
	}
	token, err := strconv.ParseUint(f[2], 10, 64)
	require.NoError(t, err)
	require.Greater(t, token, k.tokens[f[1]], "tokens rise")
	k.tokens[f[1]] = token
}

// check opens the file. A message that was put is there, unless its end was under way. A message
// that has ended is not.
func (k *killer) check(t *testing.T) {
	t.Helper()
	s, err := boltstore.Open(k.path, boltstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	q, err := s.Open(t.Context(), childConfig)
	require.NoError(t, err)
	lost := 0
	for id, word := range k.said {
		_, err := q.Get(t.Context(), driver.PartitionOf(id, q.Partitions()), id)
		switch word {
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
			require.ErrorIs(t, err, driver.ErrNotFound, "%s was %s", id, word)
		}
	}
	// A child prints "put" after the put is safe, and "ending" before it asks for the end, so no
	// message may be missing without a word.
	assert.Zero(t, lost)
	for p := range q.Partitions() {
		report, err := q.Audit(t.Context(), p, false)
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
// safe.
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
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line + " .")
	}
	errs := make(chan error)
	for worker := range 4 {
		go func() { errs <- childPuts(q, round+"-"+strconv.Itoa(worker), say) }()
	}
	for p := range q.Partitions() {
		go func() { errs <- childDelivers(q, p, say) }()
	}
	return <-errs
}

func childPuts(q driver.Backend, prefix string, say func(string)) error {
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
		say("put " + id)
		if i%3 == 1 {
			continue
		}
		say("ending " + id)
		if _, err := q.Apply(ctx, driver.Batch{Partition: p, Op: driver.OpCancel, Changes: []driver.Change{{ID: id}}}); err != nil {
			return err
		}
		say("cancelled " + id)
	}
}

func childDelivers(q driver.Backend, p int, say func(string)) error {
	ctx := context.Background()
	for {
		c, err := q.Claim(ctx, driver.Claim{Partition: p, Max: 8, MaxBytes: 1 << 20, Visibility: time.Hour})
		if err != nil {
			return err
		}
		var changes []driver.Change
		for _, r := range c.Records {
			changes = append(changes, driver.Change{ID: r.ID, Token: r.Token})
			say("token " + strconv.Itoa(p) + " " + strconv.FormatUint(r.Token, 10))
		}
		for _, op := range []driver.Op{driver.OpBegin, driver.OpAck} {
			if _, err := q.Apply(ctx, driver.Batch{Partition: p, Op: op, Visibility: time.Hour, Changes: changes}); err != nil {
				return err
			}
		}
		for _, c := range changes {
			say("acked " + c.ID)
		}
	}
}
