package boltstore

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// The replies of a put and a cancel are lost, and the client repeats the calls. The repeated calls
// return the results of the first copies. A copy that arrives after the message was enqueued again
// changes nothing.
func TestRepeatedCallTakesPlaceOnce(t *testing.T) {
	t.Parallel()
	owner, path := socketFile(t), socketFile(t)
	s := openStore(t, owner, Options{Socket: true})
	direct := openQueue(t, s, 1)
	p := newReplyDropper(t, socketPath(owner), socketPath(path))
	r, err := Connect(path)
	require.NoError(t, err)
	b := mustOpen(t, r)
	call := func(seq uint64) driver.Call {
		return driver.Call{Caller: "c", Seq: seq, NotAfter: driver.InstantOf(time.Now()).Add(time.Minute)}
	}
	items := []driver.PutItem{{ID: "a", Delay: time.Hour}}
	first := driver.Put{Call: call(1), Items: items}
	sent := p.dropReplyOf(func() {
		_, err = b.Put(t.Context(), first)
	})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	statuses, err := b.Put(t.Context(), first)
	require.NoError(t, err)
	assert.Equal(t, []driver.Status{driver.StatusDone}, statuses, "put")

	cancel := driver.Batch{Op: driver.OpCancel, Call: call(2), Changes: []driver.Change{{ID: "a"}}}
	late := p.dropReplyOf(func() {
		_, err = b.Apply(t.Context(), cancel)
	})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	outcomes, err := b.Apply(t.Context(), cancel)
	require.NoError(t, err)
	assert.Equal(t, driver.StatusDone, outcomes[0].Status, "cancel")

	put(t, direct, "a", time.Hour)
	p.replay(late)
	assert.Equal(t, driver.StateScheduled, get(t, direct, "a").State, "a late cancel")
	done(t, direct, driver.OpCancel, driver.Change{ID: "a"})
	p.replay(sent)
	_, err = direct.Get(t.Context(), 0, "a")
	require.ErrorIs(t, err, driver.ErrNotFound, "a late put")
}

// replyDropper forwards a Unix socket, and can drop a reply.
type replyDropper struct {
	t     *testing.T
	owner string

	mu   sync.Mutex
	drop bool
	sent []byte // by the client on the connection whose reply was dropped
}

func newReplyDropper(t *testing.T, owner, path string) *replyDropper {
	t.Helper()
	p := &replyDropper{t: t, owner: owner}
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.forward(client)
		}
	}()
	return p
}

func (p *replyDropper) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.owner)
	if err != nil {
		return
	}
	defer server.Close()
	var sent bytes.Buffer
	var mu sync.Mutex
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, err := client.Read(b)
			mu.Lock()
			sent.Write(b[:n])
			mu.Unlock()
			if _, failed := server.Write(b[:n]); err != nil || failed != nil {
				_ = server.Close()
				return
			}
		}
	}()
	b := make([]byte, 1<<16)
	for {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		drop := p.drop
		if drop {
			p.drop = false
			mu.Lock()
			p.sent = bytes.Clone(sent.Bytes())
			mu.Unlock()
		}
		p.mu.Unlock()
		if drop {
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// dropReplyOf runs a call, drops its reply, and returns the bytes that the client has sent on its
// connection.
func (p *replyDropper) dropReplyOf(call func()) []byte {
	p.mu.Lock()
	p.drop = true
	p.mu.Unlock()
	call()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// replay sends the bytes of a connection to the owner again, and waits until the owner has answered
// all calls.
func (p *replyDropper) replay(sent []byte) {
	p.t.Helper()
	server, err := net.Dial("unix", p.owner)
	require.NoError(p.t, err)
	defer server.Close()
	_, err = server.Write(sent)
	require.NoError(p.t, err)
	require.NoError(p.t, server.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	_, _ = io.Copy(io.Discard, server) // ends when the owner has sent nothing for a while
}
