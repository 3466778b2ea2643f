package pebblestore

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// These environment variables make the test binary a child process, which opens a directory.
const (
	childTask = "PEBBLESTORE_TEST_CHILD" // "open", "work", "serve", "descriptors" or "readonly"
	childDir  = "PEBBLESTORE_TEST_DIR"
	childName = "PEBBLESTORE_TEST_NAME" // begins the ids of its messages
)

func TestMain(m *testing.M) {
	task := os.Getenv(childTask)
	if task == "" {
		// Many tests wait for processes and locks. The flag -parallel overrides it.
		if err := flag.Set("test.parallel", strconv.Itoa(max(6, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if err := childMain(task, os.Getenv(childDir), os.Getenv(childName)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func child(ctx context.Context, task, dir, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childTask+"="+task, childDir+"="+dir, childName+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// A process is killed in the middle of its commits several times. Each time the directory has every
// change that the process has reported.
func TestKilledProcessLosesNothingAnswered(t *testing.T) {
	t.Parallel()
	rounds := max(10, testscale.Size(60))
	if testing.Short() {
		rounds = 2
	}
	k := killer{dir: filepath.Join(t.TempDir(), "store"), reported: make(map[string]string), tokens: make(map[string]uint64)}
	for i := range rounds {
		k.round(t, strconv.Itoa(i), time.Duration(5+17*(i%10))*time.Millisecond)
	}
	assert.Greater(t, len(k.reported), rounds)
}

// killer runs children on a directory, and keeps the last report about each message.
type killer struct {
	dir      string
	reported map[string]string // by id: "put", "ending" or "ended"
	tokens   map[string]uint64 // the last token of each partition
}

// round kills a child some time after its first reports, and checks the directory.
func (k *killer) round(t *testing.T, name string, work time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := child(ctx, "work", k.dir, name)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if n == 2 {
			time.AfterFunc(work, func() { _ = cmd.Process.Kill() })
		}
		k.record(t, lines.Text())
	}
	require.Error(t, cmd.Wait())
	k.check(t)
}

// record records a line of a child: a state and an id, or a partition and a token. The last line
// may be cut off.
func (k *killer) record(t *testing.T, line string) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) < 3 || f[len(f)-1] != "." {
		return
	}
	if f[0] != "token" {
		require.Contains(t, []string{"put", "ending", "ended"}, f[0], line)
		k.reported[f[1]] = f[0]
		return
	}
	token, err := strconv.ParseUint(f[2], 10, 64)
	require.NoError(t, err)
	require.Greater(t, token, k.tokens[f[1]], "tokens rise")
	k.tokens[f[1]] = token
}

// check opens the directory and compares it with the reports.
func (k *killer) check(t *testing.T) {
	t.Helper()
	s, err := Open(k.dir, Options{Memory: minMemory, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	q, err := s.Open(t.Context(), faultConfig)
	require.NoError(t, err)
	for id, state := range k.reported {
		_, err := q.Get(t.Context(), partitionOf(id), id)
		switch {
		case state == "put":
			require.NoError(t, err, id)
		case err != nil:
			require.ErrorIs(t, err, driver.ErrNotFound)
		default:
			require.NotEqual(t, "ended", state, id)
		}
	}
	for p := range q.Config().Partitions {
		report, err := q.(driver.Auditor).Audit(t.Context(), p, false)
		require.NoError(t, err)
		require.Zero(t, report.Orphans+report.Strays+report.Unreadable+report.Wrong, "%+v", report)
	}
}

var (
	childDescriptors func(dir string) error       // on Unix
	childReadOnly    func(dir, name string) error // on Linux
)

// childMain does the task of a child.
func childMain(task, dir, name string) error {
	if task == "descriptors" {
		return childDescriptors(dir)
	}
	if task == "readonly" {
		return childReadOnly(dir, name)
	}
	s, err := Open(dir, Options{Memory: minMemory, Logger: slog.New(slog.DiscardHandler), Socket: task == "serve"})
	if err != nil || task == "open" {
		return err
	}
	q, err := s.Open(context.Background(), faultConfig)
	if err != nil {
		return err
	}
	errs := make(chan error)
	for p := range q.Config().Partitions {
		go func() { errs <- childWork(q, p, name) }()
	}
	return <-errs
}

// childWork enqueues, repeats, interrupts and acknowledges messages of a partition until the
// process is killed, and prints each answer. Every second message is recurring.
func childWork(q driver.Backend, p int, name string) error {
	ctx := context.Background()
	body := make([]byte, 2000)
	for i := 0; ; i++ {
		id := fmt.Sprintf("%c-%s-%d", 'a'+p, name, i)
		item := driver.PutItem{ID: id, Body: body, MaxAttempts: 10, Repeat: strings.Repeat("daily", i%2)}
		_, err := q.Put(ctx, driver.Put{Partition: p, Items: []driver.PutItem{item}})
		if err != nil {
			return err
		}
		fmt.Println("put", id, ".")
		if i%3 == 0 {
			continue
		}
		c, err := q.Claim(ctx, driver.Claim{Partition: p, Max: 2, MaxBytes: 1 << 20, Visibility: time.Hour, Begin: i % 2})
		if err != nil {
			return err
		}
		var changes []driver.Change
		for _, r := range c.Records {
			fmt.Println("token", p, r.Token, ".")
			c := driver.Change{ID: r.ID, Token: r.Token, Again: i%2 == 0, Uncounted: i%2 == 1, Interrupt: true}
			if i%4 > 0 { // it is not cancelled
				c.Incarnation = r.Planned
			}
			changes = append(changes, c)
			if i%5 > 0 || i%4 == 0 {
				fmt.Println("ending", r.ID, ".")
			}
		}
		ops := []driver.Op{driver.OpBegin, driver.OpAck}
		if i%5 == 0 {
			ops[1] = driver.OpRetry
		}
		if i%4 == 0 {
			ops = []driver.Op{driver.OpBegin, driver.OpCancel, ops[1]}
		}
		for _, op := range ops {
			if _, err := q.Apply(ctx, driver.Batch{Partition: p, Op: op, Visibility: time.Hour, Changes: changes}); err != nil {
				return err
			}
		}
		for _, c := range changes {
			if i%5 == 0 && i%4 > 0 {
				fmt.Println("put", c.ID, ".")
			} else {
				fmt.Println("ended", c.ID, ".")
			}
		}
	}
}
