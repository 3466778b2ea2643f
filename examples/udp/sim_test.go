package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

// The same seed gives the same hour.
func TestSimulatedHourIsReproducible(t *testing.T) {
	t.Parallel()
	var found fault.List
	sim := newSimulation()
	sim.flows, sim.messages, sim.every = 2, 720, 5*time.Second
	first, err := sim.run(t.Context(), 1, &found)
	require.NoError(t, err)
	second, err := sim.run(t.Context(), 1, &found)
	require.NoError(t, err)
	other, err := sim.run(t.Context(), 2, &found)
	require.NoError(t, err)
	assert.NoError(t, found.Err())
	assert.Equal(t, first, second)
	assert.NotEqual(t, first.trace, other.trace)
	assert.Greater(t, first.took, time.Hour)
	assert.Positive(t, first.lost)
	assert.Positive(t, first.duplicated)
	assert.Positive(t, first.retransmitted)
}

func TestManySeedsAndFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		var found fault.List
		sim := newSimulation()
		sim.flows, sim.messages, sim.every, sim.outage = 2, 100, 10*time.Millisecond, 0
		sim.loss, sim.duplicate, sim.jitter = float64(seed%4)*10, float64(seed%3)*20, time.Duration(seed%5)*50*time.Millisecond
		sim.window = 1 + int(seed%8)*5
		sim.tries = 20
		_, err := sim.run(t.Context(), seed, &found)
		require.NoError(t, err)
		assert.NoError(t, found.Err(), "seed %d", seed)
	}
}

func TestNoRetransmissionsWithoutFaults(t *testing.T) {
	t.Parallel()
	var found fault.List
	sim := newSimulation()
	sim.messages = 300
	sim.faults, sim.outage = faults{latency: 50 * time.Millisecond}, 0
	got, err := sim.run(t.Context(), 1, &found)
	require.NoError(t, err)
	assert.NoError(t, found.Err())
	assert.Zero(t, got.retransmitted)
	assert.Equal(t, 2*got.delivered, got.packets)
}

// Without latency the answer to a packet must not arrive during the call that sends the packet.
func TestNoLatency(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		var found fault.List
		sim := newSimulation()
		sim.messages, sim.every, sim.outage = 300, 10*time.Millisecond, 5*time.Second
		sim.latency, sim.jitter, sim.loss = 0, 0, 20
		_, err := sim.run(t.Context(), seed, &found)
		require.NoError(t, err)
		assert.NoError(t, found.Err(), "seed %d", seed)
	}
}

func TestTooLongOutageEndsTheFlows(t *testing.T) {
	t.Parallel()
	var found fault.List
	sim := newSimulation()
	sim.messages, sim.outage = 300, time.Hour
	_, err := sim.run(t.Context(), 1, &found)
	require.NoError(t, err)
	assert.ErrorContains(t, found.Err(), "no answer")
}

func TestInboxFindsEachFault(t *testing.T) {
	t.Parallel()
	f := flow{id: 3}
	for want, deliver := range map[string]func(*inbox){
		"":                        func(in *inbox) { in.deliver(f, message(3, 0)); in.deliver(f, message(3, 1)) },
		"instead of message 1":    func(in *inbox) { in.deliver(f, message(3, 0)); in.deliver(f, message(3, 0)) },
		"message 0":               func(in *inbox) { in.deliver(f, message(3, 1)); in.deliver(f, message(3, 0)) },
		"1 messages instead of 2": func(in *inbox) { in.deliver(f, message(3, 0)) },
		"0 flows instead of 1":    func(*inbox) {},
		"another message":         func(in *inbox) { in.deliver(f, message(4, 0)); in.deliver(f, message(3, 1)) },
	} {
		var found fault.List
		in := newInbox(&found)
		deliver(in)
		in.complete(1, 2)
		if want == "" {
			assert.NoError(t, found.Err())
		} else {
			assert.ErrorContains(t, found.Err(), want)
		}
	}
}

func TestParseInvertsBytes(t *testing.T) {
	t.Parallel()
	for _, p := range []packet{
		{kind: data, flow: 1, seq: 2, message: []byte("hello")},
		{kind: data, flow: 1 << 31, seq: 1<<32 - 1, message: []byte{}},
		{kind: data, message: make([]byte, maxMessage)},
		{kind: ack, flow: 1, seq: 2, next: 3},
	} {
		got, ok := parse(p.bytes())
		assert.True(t, ok)
		assert.Equal(t, p, got)
	}
	for _, b := range [][]byte{
		nil,
		make([]byte, headerSize),
		packet{kind: data}.bytes()[:headerSize-1],
		packet{kind: data, message: make([]byte, maxMessage+1)}.bytes(),
		packet{kind: ack}.bytes()[:ackSize-1],
		append(packet{kind: ack}.bytes(), 0),
		packet{kind: ack + 1}.bytes(),
	} {
		_, ok := parse(b)
		assert.False(t, ok, "%v", b)
	}
}

// A node accepts arbitrary packets without a panic, and sends only packets that it can parse.
func FuzzNode(f *testing.F) {
	f.Add(packet{kind: ack, seq: 1, next: 2}.bytes(), packet{kind: data, seq: 0, message: []byte("x")}.bytes(), uint16(1000))
	f.Add(packet{kind: ack, seq: 3, next: 1<<32 - 1}.bytes(), packet{kind: data, seq: 1 << 31}.bytes(), uint16(0))
	f.Fuzz(func(t *testing.T, first, second []byte, millis uint16) {
		tw, err := timingwheel.New(timingwheel.Options{Manual: true})
		require.NoError(t, err)
		defer tw.Stop()
		peer := netip.MustParseAddrPort("192.0.2.1:1")
		ends := 0
		n := newNode(tw, newSimulation().protocol, func(_ netip.AddrPort, b []byte) {
			_, ok := parse(b)
			assert.True(t, ok)
		}, func(flow, []byte) {})
		s, err := n.open(flow{peer, 0}, func(error) { ends++ })
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, s.send([]byte("hello")))
		}
		for _, b := range [][]byte{first, second, first} {
			n.receive(peer, b)
			tw.Advance(tw.Now().Add(time.Duration(millis) * time.Millisecond))
			if _, running := s.timer.Deadline(); !s.done {
				require.Equal(t, len(s.window) > 0, running, "the timer must be pending if and only if a message is unacknowledged")
			}
		}
		for next, ok := tw.Next(); ok; next, ok = tw.Next() {
			tw.Advance(next)
		}
		s.finish()
		assert.Equal(t, 1, ends)
		assert.Empty(t, n.receivers)
	})
}
