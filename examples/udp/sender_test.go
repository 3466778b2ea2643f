package main

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// testSender is a sender whose packets the test answers, at times that it chooses.
type testSender struct {
	*sender
	start  time.Time
	sentAt map[uint32][]time.Duration // times of the transmissions of each message
	ends   []error
}

func newTestSender(t *testing.T, size int) *testSender {
	t.Helper()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	b := &testSender{start: tw.Now(), sentAt: make(map[uint32][]time.Duration)}
	b.sender = &sender{
		tw:    tw,
		size:  size,
		rto:   newEstimator(timing{initial: time.Second, least: time.Second, most: 10 * time.Second, tick: time.Millisecond, tries: 6}),
		out:   func(p packet) { b.sentAt[p.seq] = append(b.sentAt[p.seq], tw.Now().Sub(b.start)) },
		ended: func(err error) { b.ends = append(b.ends, err) },
	}
	b.sender.timer.InitStopped(tw, b.sender.timeout)
	return b
}

// at runs all timers until d and then sets the clock to d.
func (b *testSender) at(d time.Duration) {
	for next, ok := b.tw.Next(); ok && !next.After(b.start.Add(d)); next, ok = b.tw.Next() {
		b.tw.Advance(next)
	}
	b.tw.Advance(b.start.Add(d))
}

func (b *testSender) answer(seq, next uint32) { b.acknowledge(packet{kind: ack, seq: seq, next: next}) }

func seconds(n ...float64) (ds []time.Duration) {
	for _, s := range n {
		ds = append(ds, time.Duration(s*float64(time.Second)))
	}
	return ds
}

func TestRTOFollowsRFC6298(t *testing.T) {
	t.Parallel()
	e := newEstimator(timing{initial: time.Second, least: 10 * time.Millisecond, most: time.Minute, tick: time.Millisecond})
	assert.Equal(t, time.Second, e.rto)
	e.sample(100 * time.Millisecond)
	assert.Equal(t, 300*time.Millisecond, e.rto, "the first round trip plus four times its half")
	e.sample(180 * time.Millisecond) // deviation 3/4*50+1/4*80, mean 7/8*100+1/8*180
	assert.Equal(t, 57500*time.Microsecond, e.deviation)
	assert.Equal(t, 110*time.Millisecond, e.smoothed)
	assert.Equal(t, 340*time.Millisecond, e.rto)
	e.backOff()
	assert.Equal(t, 680*time.Millisecond, e.rto)
	e.sample(110 * time.Millisecond)
	assert.Less(t, e.rto, 340*time.Millisecond, "timeout after a new sample")
	for range 1000 {
		e.sample(time.Microsecond)
	}
	assert.Equal(t, 10*time.Millisecond, e.rto, "minimum")
	for range 100 {
		e.backOff()
	}
	assert.Equal(t, time.Minute, e.rto, "maximum")
}

// Without an answer the wait doubles after each timeout up to the maximum, and then the sender
// gives up.
func TestBackoffAndGivingUp(t *testing.T) {
	t.Parallel()
	b := newTestSender(t, 8)
	require.NoError(t, b.send(nil))
	require.NoError(t, b.send(nil))
	b.at(time.Hour)
	assert.Equal(t, seconds(0, 1, 3, 7, 15, 25, 35), b.sentAt[0])
	assert.Equal(t, seconds(0), b.sentAt[1], "only the first message is repeated")
	require.Len(t, b.ends, 1)
	assert.ErrorIs(t, b.ends[0], errNoAnswer)
	assert.ErrorContains(t, b.ends[0], "sent 7 times")
	assert.Zero(t, b.tw.Len())
	assert.Error(t, b.send(nil))
	b.answer(0, 2) // too late
	assert.Len(t, b.ends, 1)
}

func TestAcknowledgementRestartsOrStopsTheTimer(t *testing.T) {
	t.Parallel()
	b := newTestSender(t, 8)
	require.NoError(t, b.send(nil))
	require.NoError(t, b.send(nil))
	b.at(900 * time.Millisecond)
	b.answer(0, 1)
	assert.Equal(t, 900*time.Millisecond, b.rto.smoothed)
	deadline, ok := b.timer.Deadline()
	assert.True(t, ok)
	assert.Equal(t, b.start.Add(900*time.Millisecond+2700*time.Millisecond), deadline, "the other message has the whole timeout")
	b.at(time.Second)
	b.answer(0, 1)
	again, _ := b.timer.Deadline()
	assert.Equal(t, deadline, again, "a duplicate acknowledgement moved the deadline")
	b.answer(1, 2)
	assert.Zero(t, b.tw.Len())
	assert.Empty(t, b.ends)
	b.finish()
	assert.Equal(t, []error{nil}, b.ends)
	b.at(time.Hour)
	assert.Equal(t, seconds(0), b.sentAt[0])
}

// Karn's algorithm: the acknowledgement of a retransmitted message is no sample, and the backoff
// stays until there is one.
func TestRetransmittedMessageIsNoSample(t *testing.T) {
	t.Parallel()
	b := newTestSender(t, 8)
	require.NoError(t, b.send(nil))
	b.at(2500 * time.Millisecond)
	assert.Equal(t, seconds(0, 1), b.sentAt[0])
	b.answer(0, 1)
	assert.False(t, b.rto.measured)
	assert.Equal(t, 2*time.Second, b.rto.rto)
	require.NoError(t, b.send(nil))
	b.at(4400 * time.Millisecond)
	assert.Equal(t, seconds(2.5), b.sentAt[1], "transmissions within 1.9s")
	b.answer(1, 2)
	assert.Equal(t, 1900*time.Millisecond, b.rto.smoothed)
}

func TestOvertakenMessageIsRetransmittedBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	b := newTestSender(t, 8)
	require.NoError(t, b.send(nil))
	b.at(10 * time.Millisecond)
	b.answer(0, 1) // a round trip of 10 ms, deviation 5 ms
	for range 5 {
		require.NoError(t, b.send(nil))
	}
	b.at(20 * time.Millisecond)
	b.answer(2, 1)
	b.answer(3, 1)
	b.answer(3, 1) // a duplicate
	b.answer(4, 1)
	assert.Len(t, b.sentAt[1], 1, "overtaken by three, but not overdue")
	b.at(40 * time.Millisecond)
	b.answer(5, 1)
	assert.Equal(t, []time.Duration{10 * time.Millisecond, 40 * time.Millisecond}, b.sentAt[1])
	b.at(50 * time.Millisecond)
	b.answer(1, 6)
	assert.Empty(t, b.window)
	assert.Zero(t, b.tw.Len())
}

func TestLaterAcknowledgementsMakeUpForLostOnes(t *testing.T) {
	t.Parallel()
	b := newTestSender(t, 4)
	for range 10 {
		require.NoError(t, b.send(nil))
	}
	assert.Len(t, b.sentAt, 4, "the window")
	b.answer(3, 4)
	assert.Len(t, b.sentAt, 8)
	b.answer(3, 4)
	b.answer(99, 3) // old
	b.answer(99, 99)
	b.answer(0, math.MaxUint32)
	assert.Len(t, b.sentAt, 8, "messages sent after old or forged acknowledgements")
	b.answer(6, 8)
	b.answer(9, 10)
	b.finish()
	assert.Equal(t, []error{nil}, b.ends)
}

func TestTooLongMessageIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestSender(t, 4)
	assert.ErrorContains(t, b.send(make([]byte, maxMessage+1)), "1192 bytes")
	assert.NoError(t, b.send(make([]byte, maxMessage)))
	b.finish()
	assert.Error(t, b.send(nil))
}

func TestNumbersWrapAround(t *testing.T) {
	t.Parallel()
	var found []byte
	var answers []packet
	r := &receiver{size: 4, next: math.MaxUint32 - 1, early: make(map[uint32][]byte), deliver: func(m []byte) { found = append(found, m...) }}
	r.out = func(p packet) { answers = append(answers, p) }
	b := newTestSender(t, 4)
	b.first = math.MaxUint32 - 1
	var sent []packet
	b.out = func(p packet) { sent = append(sent, p) }
	for _, m := range "abcdefgh" {
		require.NoError(t, b.send([]byte(string(m))))
	}
	b.finish()
	for len(sent) > 0 {
		for i := range sent { // in reverse order
			r.receive(sent[len(sent)-1-i])
			r.receive(sent[len(sent)-1-i])
		}
		sent = nil
		for _, a := range answers {
			b.acknowledge(a)
		}
		answers = nil
	}
	assert.Equal(t, "abcdefgh", string(found))
	assert.Equal(t, uint32(6), r.next)
	assert.Equal(t, []error{nil}, b.ends)
}

func TestReceiverIsBounded(t *testing.T) {
	t.Parallel()
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	require.NoError(t, err)
	defer tw.Stop()
	cfg := protocol{timing: timing{most: time.Second, tries: 9}, window: 4, flows: 2}
	answers := 0
	n := newNode(tw, cfg, func(netip.AddrPort, []byte) { answers++ }, func(flow, []byte) {})
	peer := netip.MustParseAddrPort("192.0.2.1:1")
	for id := range uint32(5) {
		for seq := uint32(1); seq < 100; seq++ { // 0 is missing
			n.receive(peer, packet{kind: data, flow: id, seq: seq}.bytes())
		}
	}
	assert.Len(t, n.receivers, 2)
	assert.Len(t, n.receivers[flow{peer, 0}].early, 3)
	assert.Equal(t, 6, answers, "packets outside the window are not answered")
	tw.Advance(tw.Now().Add(20*time.Second + maxStall))
	assert.Empty(t, n.receivers, "receivers after their senders must have given up")
}
