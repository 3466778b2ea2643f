package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// One process pauses a queue. The queue stays paused for the next process, which shows the pause.
func TestPauseOutlastsItsProcess(t *testing.T) {
	d := onDirectory(t)
	d.ok("enqueue", "-id", "m", "-body", "x")
	assert.NotContains(t, d.ok("watch", "-n", "1"), "paused")
	assert.Equal(t, "queue default is paused\n", d.ok("pause"))
	assert.Contains(t, d.ok("watch", "-n", "1"), "paused")
	assert.Contains(t, d.ok("-json", "watch", "-n", "1"), `"paused":true`)
	r := d.runIn("", "take", "-wait", "100ms")
	require.Error(t, r.err)
	assert.Equal(t, "queue default is not paused\n", d.ok("resume"))
	assert.JSONEq(t, `{"queue":"default","paused":false}`, d.ok("-json", "resume"))
	assert.Equal(t, "x\n", d.ok("take", "-wait", "1m", "-ack"))
	require.Error(t, d.runIn("", "pause", "orders").err, "an argument")
}

func TestConsumersAreListedAsTableAndJSON(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	b, err := store.Open(t.Context(), driver.Config{Queue: "default", DeadLimit: 1, DeadBytes: 1, DeadAge: time.Hour})
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	require.NoError(t, onMemory(t.Context(), store, &stdout, &stderr, "consumers"))
	assert.Empty(t, stdout.String())
	assert.Equal(t, "delayq: queue \"default\" has no consumers\n", stderr.String())
	_, err = b.Heartbeat(t.Context(), driver.Member{Name: "a", Host: "shop-7", PID: 4711, Partitions: []int{0, 1, 2, 5, 7}}, time.Minute)
	require.NoError(t, err)
	_, err = b.Heartbeat(t.Context(), driver.Member{Name: "b"}, time.Minute)
	require.NoError(t, err)
	require.NoError(t, onMemory(t.Context(), store, &stdout, &stderr, "consumers"))
	assert.Regexp(t, `shop-7 +│ +4711 +│ 0-2, 5, 7 +│ .* ago\) +│ .* \(in .*\) +│ a`, stdout.String())
	assert.Contains(t, stdout.String(), " none ")
	stdout.Reset()
	require.NoError(t, onMemory(t.Context(), store, &stdout, &stderr, "-json", "consumers"))
	line, _, _ := strings.Cut(stdout.String(), "\n")
	var got consumerJSON
	require.NoError(t, json.Unmarshal([]byte(line), &got))
	assert.Equal(t, "shop-7", got.Host)
	assert.Equal(t, []int{0, 1, 2, 5, 7}, got.Partitions)
	require.NotZero(t, got.LastHeartbeat)
	assert.Equal(t, time.Minute, got.Expires.Sub(got.LastHeartbeat).Truncate(time.Second))
}

func TestHealthFailsWithoutAStore(t *testing.T) {
	d := onDirectory(t)
	require.ErrorIs(t, d.runIn("", "health").err, os.ErrNotExist)
	d.ok("enqueue", "-body", "x")
	assert.Equal(t, "queue default is healthy\n", d.ok("health"))
	assert.JSONEq(t, `{"queue":"default","healthy":true}`, d.ok("-json", "health"))
}

// Health rejects a server that may lose messages, although other commands accept it.
func TestHealthRejectsAServerThatMayLoseMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	d := tester{t, "redis://" + server.Addr()}
	d.ok("enqueue", "-body", "x")
	r := d.runIn("", "health")
	require.ErrorIs(t, r.err, durable.ErrUnsafe)
	assert.ErrorContains(t, r.err, "appendonly")
}

func TestRangesJoinNeighbours(t *testing.T) {
	t.Parallel()
	for want, numbers := range map[string][]int{
		"none": nil, "3": {3}, "0-1": {0, 1}, "0, 2": {0, 2}, "0-2, 5, 7-8": {0, 1, 2, 5, 7, 8},
	} {
		assert.Equal(t, want, ranges(numbers))
	}
}

// A server loads its data set and rejects commands.
func TestHealthGivesUpWhileAServerLoads(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				for r := bufio.NewScanner(conn); r.Scan(); {
					if strings.HasPrefix(r.Text(), "*") { // the beginning of a command
						_, _ = conn.Write([]byte("-LOADING Redis is loading the dataset in memory\r\n"))
					}
				}
			}()
		}
	}()
	d := tester{t, "redis://" + l.Addr().String()}
	begin := time.Now()
	require.ErrorIs(t, d.fails([]string{"health"}, "loads its data set"), durable.ErrUnavailable)
	assert.Less(t, time.Since(begin), 50*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // as Ctrl-C
	defer cancel()
	require.Error(t, run(ctx, []string{"delayq", "-store", d.store, "list"}, nil, io.Discard, io.Discard))
	assert.Less(t, time.Since(begin), 55*time.Second)
}
