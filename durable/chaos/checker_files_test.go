package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEventsSurviveAFile(t *testing.T) {
	t.Parallel()
	for kind := Enqueued; kind <= Interrupted; kind++ {
		for _, id := range []string{"a", "an id with spaces", " ", "ünïcode-世界"} {
			e := Event{Kind: kind, ID: id, Due: -5, Token: 1<<64 - 1, Clock: 1 << 52, Attempt: 7}
			line := e.appendTo(nil)
			require.Equal(t, byte('\n'), line[len(line)-1])
			got, err := parse(line[:len(line)-1])
			require.NoError(t, err)
			assert.Equal(t, e, got)
		}
		assert.NotContains(t, kind.String(), "Kind(")
	}
	assert.Equal(t, "Kind(99)", Kind(99).String())
	assert.Len(t, letters, int(Interrupted)+1)
}

func TestInvalidEventsAreRefused(t *testing.T) {
	t.Parallel()
	f, err := OpenFile(filepath.Join(t.TempDir(), "events"))
	require.NoError(t, err)
	defer f.Close()
	for _, r := range []Recorder{New(Options{}), f} {
		for _, e := range []Event{{}, {Kind: Enqueued}, {ID: "a"}, {Kind: Interrupted + 1, ID: "a"}, {Kind: Acked, ID: "a\nb"}} {
			require.ErrorIs(t, r.Record(e), ErrEvent, "%+v", e)
		}
	}
	for _, line := range []string{
		"", "E", "E 1 2 3 4", "E 1 2 3 4 ", "X 1 2 3 4 a", "  1 2 3 4 a",
		"E x 2 3 4 a", "E 1 -2 3 4 a", "E 1 2 3 x a", "EE 1 2 3 4 a",
	} {
		_, err := parse([]byte(line))
		require.ErrorIs(t, err, ErrEvent, "%q", line)
	}
}

func TestConcurrentWritersShareAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	var wg sync.WaitGroup
	for g := range 4 { // as four processes would
		f, err := OpenFile(path)
		require.NoError(t, err)
		wg.Go(func() {
			defer f.Close()
			for i := range 250 {
				id := fmt.Sprintf("m %d %d", g, i)
				assert.NoError(t, f.Record(enq(id, 1), started(id, 1, 2)))
				assert.NoError(t, f.Record(with(Handled, id, 1)))
			}
		})
	}
	wg.Wait()
	h := New(Options{})
	require.NoError(t, h.ReadFile(path, nil))
	r := h.Check()
	require.NoError(t, r.Err())
	assert.Equal(t, 1000, r.Enqueued)
	assert.Equal(t, 1000, r.Handled)
}

func TestIncompleteLastLineIsSkipped(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	require.NoError(t, h.read(strings.NewReader("E 1 0 0 0 a\nC 0 0 0 0 a\nE 1 0 0"), nil))
	assert.Equal(t, 1, h.Check().Enqueued)
	require.NoError(t, h.Check().Err())
}

func TestReadFileRecordsEditedEvents(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	require.NoError(t, h.read(strings.NewReader("E 1 0 5 0 a\nE 1 0 9 0 b\n"), func(e Event) Event {
		if e.Clock > 7 {
			e.Kind = MaybeEnqueued
		}
		return e
	}))
	r := h.Check()
	assert.Equal(t, 1, r.Enqueued)
	assert.Equal(t, 1, r.MaybeEnqueued)
	assert.Equal(t, violations{"lost": 1}, broken(r))
}

func TestDamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	err := New(Options{}).read(strings.NewReader("E 1 0 0 0 a\nE 1 0\nC 0 0 0 0 a\n"), nil)
	require.ErrorIs(t, err, ErrEvent)
	require.ErrorContains(t, err, "line 2")
	require.ErrorIs(t, New(Options{}).ReadFile(filepath.Join(t.TempDir(), "none"), nil), os.ErrNotExist)
	_, err = OpenFile(t.TempDir())
	require.Error(t, err)
}

// envRecord names a file in which the test binary records events until it is killed.
const envRecord = "TIMINGWHEEL_CHECKER_RECORD"

func TestEventsOfKilledProcessesAreComplete(t *testing.T) {
	if path := os.Getenv(envRecord); path != "" {
		recordForever(path)
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	var commands []*exec.Cmd
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEventsOfKilledProcessesAreComplete$")
		cmd.Env = append(os.Environ(), envRecord+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1)) // it has recorded something
		require.NoError(t, err)
		commands = append(commands, cmd)
	}
	for _, cmd := range commands {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	h := New(Options{})
	require.NoError(t, h.ReadFile(path, nil))
	r := h.Check()
	require.NoError(t, r.Err())
	assert.GreaterOrEqual(t, r.Enqueued, 200)
}

// recordForever records whole histories, one after the other, each in one call.
func recordForever(path string) {
	f, err := OpenFile(path)
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		id := fmt.Sprintf("m-%d-%d", os.Getpid(), i)
		if err := f.Record(enq(id, 1), started(id, 1, 2), with(Acked, id, 1)); err != nil {
			panic(err)
		}
		if i == 100 {
			os.Stdout.WriteString(".")
		}
	}
}

func BenchmarkFile(b *testing.B) {
	f, err := OpenFile(filepath.Join(b.TempDir(), "events"))
	require.NoError(b, err)
	defer f.Close()
	for b.Loop() {
		_ = f.Record(started("message-00000001", 1, 2))
	}
}
