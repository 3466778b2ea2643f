package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
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

func TestQueuesAreListedAndDeleted(t *testing.T) {
	q, run := queueAndProgram(t)
	out, err := run("queues")
	require.NoError(t, err)
	assert.Equal(t, "default\n", out)
	_, err = run("-queue", "mails", "enqueue", "-body", "x", "-delay", "1h")
	require.NoError(t, err)
	out, err = run("queues", "-json")
	require.NoError(t, err)
	assert.Equal(t, "{\"queue\":\"default\"}\n{\"queue\":\"mails\"}\n", out)
	ended := make(chan error)
	go func() {
		ended <- q.Consume(t.Context(), func(context.Context, *durable.Delivery) error { return nil }, durable.ConsumerOptions{})
	}()
	require.Eventually(t, func() bool { out, err = run("consumers"); return err == nil && out != "" }, time.Minute, time.Millisecond)
	_, err = run("queues", "delete", "default")
	require.ErrorIs(t, err, durable.ErrInUse)
	require.ErrorContains(t, err, "-force")
	out, err = run("queues", "delete", "mails")
	require.NoError(t, err)
	assert.Equal(t, "queue mails is deleted\n", out)
	out, err = run("-json", "queues", "delete", "-force", "default")
	require.NoError(t, err)
	assert.JSONEq(t, `{"queue":"default","deleted":true}`, out)
	require.ErrorIs(t, <-ended, durable.ErrNoQueue)
	_, err = run("queues", "delete", "default")
	require.ErrorIs(t, err, durable.ErrNoQueue)
	out, err = run("queues")
	require.NoError(t, err)
	assert.Empty(t, out)
}

// The limits of a queue are printed and changed. A consumer keeps to the new ones.
func TestLimitsOfAQueueAreSet(t *testing.T) {
	q, run := queueAndProgram(t)
	out, err := run("queues", "set", "default")
	require.NoError(t, err)
	assert.Contains(t, out, "30d")
	out, err = run("-json", "queues", "set", "default", "-dead-limit", "1", "-dead-age", "7d", "-max-body", "5")
	require.NoError(t, err)
	assert.JSONEq(t, fmt.Sprintf(`{"queue":"default","partitions":%d,"maxBody":5,"maxAttempts":25,"deadLimit":1,"deadBytes":67108864,"deadAgeMs":604800000}`,
		q.Options().Partitions), out)
	_, err = run("enqueue", "-body", "longer")
	require.ErrorIs(t, err, durable.ErrInvalid)
	_, err = run("queues", "set", "mails", "-max-body", "5")
	require.ErrorIs(t, err, durable.ErrNoQueue)
	_, err = run("queues", "set", "default", "-max-body", "0")
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, "from 1 to 67108864")
}

// The program that has the directory open deletes a queue for another one.
func TestQueuesOfAServedDirectoryAreListedAndDeleted(t *testing.T) {
	d := onDirectory(t)
	store, err := pebblestore.Open(strings.TrimPrefix(d.store, "dir:"), pebblestore.Options{Socket: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	d.ok("enqueue", "-id", "a", "-body", "x")
	d.ok("-queue", "mails", "enqueue", "-body", "x")
	q, err := durable.Open(t.Context(), store, durable.Options{})
	require.NoError(t, err)
	defer q.Close()
	assert.Equal(t, "default\nmails\n", d.ok("queues"))
	d.ok("queues", "delete", "default")
	assert.Equal(t, "mails\n", d.ok("queues"))
	_, err = q.Get(t.Context(), "a")
	require.ErrorIs(t, err, durable.ErrNoQueue)
	require.ErrorIs(t, d.fails([]string{"inspect", "a"}), durable.ErrNoQueue)
	d.ok("-partitions", "3", "enqueue", "-id", "a", "-body", "new")
	assert.Contains(t, d.ok("inspect", "a"), "new")
	_, err = q.Enqueue(t.Context(), durable.Message{ID: "b"})
	require.ErrorIs(t, err, durable.ErrPartitions)
}

func TestConsumersAreListedAsTableAndJSON(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	b, err := store.Open(t.Context(), driver.Config{Queue: "default"})
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
	assert.Regexp(t, `shop-7 +│ +4711 +│ 0 1 2 5 7 +│ .* ago\) +│ .* \(in .*\) +│ a`, stdout.String())
	stdout.Reset()
	require.NoError(t, onMemory(t.Context(), store, &stdout, &stderr, "-json", "consumers"))
	line, _, _ := strings.Cut(stdout.String(), "\n")
	var got printedConsumer
	require.NoError(t, json.Unmarshal([]byte(line), &got))
	assert.Equal(t, "shop-7", got.Host)
	assert.Equal(t, []int{0, 1, 2, 5, 7}, got.Partitions)
	require.NotZero(t, got.LastHeartbeat)
	assert.Equal(t, time.Minute, got.Expires.Sub(got.LastHeartbeat).Truncate(time.Second))
}

func TestHealthFailsWithoutAStore(t *testing.T) {
	d := onDirectory(t)
	d.fails([]string{"health"}, "no such directory")
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

// A key of the queue was lost. Health names it until an audit has repaired the queue.
func TestHealthNamesLostKeysUntilAnAudit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendOnly: true})
	d := tester{t, "redis://" + server.Addr()}
	d.ok("enqueue", "-body", "x")
	d.ok("health")
	for _, key := range []string{"tw:{default:3}:d", "tw:{default:5}:d"} {
		require.EqualValues(t, 1, server.Client(t).Del(t.Context(), key).Val())
	}
	for range 2 {
		r := d.runIn("", "health")
		require.ErrorIs(t, r.err, durable.ErrUnsafe)
		require.ErrorContains(t, r.err, "tw:{default:3}:d")
		assert.Empty(t, r.stderr, "the error says it all")
	}
	r := d.runIn("", "audit", "-repair")
	require.NoError(t, r.err)
	assert.Contains(t, r.stderr, "tw:{default:3}:d", "the audit names what it clears")
	assert.Contains(t, r.stderr, "tw:{default:5}:d")
	d.ok("health")
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
