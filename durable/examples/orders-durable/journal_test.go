package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openBoth opens a journal twice, as two processes do.
func openBoth(t *testing.T) (path string, a, b *journal) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "journal.jsonl")
	js := [2]*journal{}
	for i := range js {
		var err error
		js[i], err = openJournal(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = js[i].close() })
	}
	return path, js[0], js[1]
}

func write(t *testing.T, j *journal, k kind, token uint64) order {
	t.Helper()
	o, err := j.write(k, "o", token)
	require.NoError(t, err)
	return o
}

func TestFirstDecisionCounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ first, then kind }{{paid, cancelled}, {cancelled, paid}, {cancelled, cancelled}, {paid, paid}} {
		path, a, b := openBoth(t)
		write(t, a, placed, 0)
		write(t, b, delivered, 5)
		decided := write(t, a, tt.first, 5)
		assert.Equal(t, tt.first, decided.decision)
		again := write(t, b, tt.then, 5)
		assert.Equal(t, tt.first, again.decision)
		assert.True(t, decided.decidedAt.Equal(again.decidedAt), "the first one's time stands")
		read, err := readBook(path)
		require.NoError(t, err)
		assert.Equal(t, again, *read.orders["o"], "who reads the file from its beginning finds the same")
		assert.Equal(t, 1, read.decided)
	}
}

func TestLateTokenIsFenced(t *testing.T) {
	t.Parallel()
	_, a, b := openBoth(t)
	write(t, a, delivered, 5)
	write(t, b, delivered, 9)
	o := write(t, a, cancelled, 5)
	assert.Empty(t, o.decision)
	assert.Equal(t, 1, o.void)
	o = write(t, a, delivered, 5)
	assert.EqualValues(t, 9, o.token, "the highest is remembered")
	assert.Zero(t, o.sameToken)
	assert.Equal(t, cancelled, write(t, b, cancelled, 9).decision)
}

func TestTornLineSpoilsNothing(t *testing.T) {
	t.Parallel()
	path, a, b := openBoth(t)
	write(t, a, placed, 0)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString("\n{\"kind\":\"cancelled\",\"order\":\"o")
	require.NoError(t, err)
	n, err := b.undecided()
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Zero(t, b.book.torn, "it may be that it is still being written")
	assert.Equal(t, paid, write(t, a, paid, 0).decision)
	n, err = b.undecided()
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, 1, b.book.torn)

	_, err = f.WriteString("\n{\"kind\":\"placed\",") // a line that comes in two parts, and is not torn
	require.NoError(t, err)
	_, err = b.undecided()
	require.NoError(t, err)
	_, err = f.WriteString("\"order\":\"p\",\"at\":\"2030-01-02T03:04:05Z\"}\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	n, err = b.undecided()
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), b.book.orders["p"].placed)
}

// Payments and cancellations by two processes at the same time: all agree about each order.
func TestDecisionsRace(t *testing.T) {
	t.Parallel()
	const orders = 200
	path, a, b := openBoth(t)
	var mu sync.Mutex
	told := make(map[string]map[kind]bool)
	for i := range orders {
		told[fmt.Sprintf("o%d", i)] = make(map[kind]bool)
	}
	var g sync.WaitGroup
	for i := range orders {
		id := fmt.Sprintf("o%d", i)
		for _, by := range []struct {
			j *journal
			k kind
		}{{a, paid}, {b, cancelled}, {b, paid}, {a, cancelled}} {
			g.Go(func() {
				o, err := by.j.write(by.k, id, 0)
				mu.Lock()
				defer mu.Unlock()
				if assert.NoError(t, err) {
					told[id][o.decision] = true
				}
			})
		}
	}
	g.Wait()
	read, err := readBook(path)
	require.NoError(t, err)
	require.Len(t, read.orders, orders)
	assert.Equal(t, orders, read.decided)
	assert.Zero(t, read.torn)
	for id, o := range read.orders {
		assert.Equal(t, map[kind]bool{o.decision: true}, told[id], id)
	}
}

func TestOpenJournalFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nowhere", "journal")
	_, err := openJournal(path)
	assert.ErrorContains(t, err, path)
}
