package migrating

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/docsnippet"
	"github.com/timingwheel-go/timingwheel/keyed"
)

// The recipes of docs/migrating.md. Each runs with package time ("before") and with a wheel
// ("after") on fake time. Both must do the same at the same times.

// eventLog records events with their times.
type eventLog struct {
	begun time.Time
	mu    sync.Mutex
	lines []event
}

type event struct {
	ms   int // since the log was begun
	what string
	ok   bool
}

func (d *eventLog) note(what string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, event{int(time.Since(d.begun) / time.Millisecond), what, ok})
}

const ms = time.Millisecond

// inBubble runs f on fake time, with a wheel.
func inBubble(t *testing.T, f func(tw *timingwheel.TimingWheel)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tw, err := timingwheel.New(timingwheel.Options{})
		require.NoError(t, err)
		f(tw)
		require.NoError(t, tw.Shutdown(context.Background()))
		synctest.Wait()
	})
}

// recipe has the two forms of one recipe.
type recipe struct {
	before func(d *eventLog)
	after  func(d *eventLog, tw *timingwheel.TimingWheel)
}

var recipes = map[string]recipe{
	"a timeout that others shorten": {
		before: func(d *eventLog) { suspect(d, &suspicionBefore{}) },
		after:  func(d *eventLog, tw *timingwheel.TimingWheel) { suspect(d, &suspicion{tw: tw}) },
	},
	"deadlines of a connection": {
		before: func(d *eventLog) { setDeadlines(d, newConnBefore(timeout(d))) },
		after:  func(d *eventLog, tw *timingwheel.TimingWheel) { setDeadlines(d, newConn(tw, timeout(d))) },
	},
	"a ping after silence": {
		before: func(d *eventLog) { speak(d, newPeerBefore(d.note)) },
		after:  func(d *eventLog, tw *timingwheel.TimingWheel) { speak(d, newPeer(tw, d.note)) },
	},
	"a pool of channel timers": {
		before: func(d *eventLog) { sendAll(d, newSenderBefore()) },
		after:  func(d *eventLog, tw *timingwheel.TimingWheel) { sendAll(d, newSender(tw)) },
	},
	"leases": {
		before: func(d *eventLog) { useLease(d, newLeaseBefore(expiry(d))) },
		after:  func(d *eventLog, tw *timingwheel.TimingWheel) { useLease(d, newLease(tw, expiry(d))) },
	},
	"retransmissions": {
		before: func(d *eventLog) { transmit(d, newRequestBefore(sending(d))) },
		after:  func(d *eventLog, tw *timingwheel.TimingWheel) { transmit(d, newRequest(tw, sending(d))) },
	},
	"batches": {
		before: func(d *eventLog) { produce(d, collectBefore) },
		after: func(d *eventLog, tw *timingwheel.TimingWheel) {
			produce(d, func(queue <-chan int, export func([]int)) { collect(tw, queue, export) })
		},
	},
	"a time to live": {
		before: func(d *eventLog) { fill(d, newCacheBefore()) },
		after: func(d *eventLog, _ *timingwheel.TimingWheel) {
			c, err := newCache()
			d.note("made", err == nil)
			fill(d, c)
		},
	},
	"calls with a timeout and retries": {
		before: func(d *eventLog) { callAll(d, callBefore) },
		after: func(d *eventLog, tw *timingwheel.TimingWheel) {
			callAll(d, func(ctx context.Context, try attempt) error { return call(ctx, tw, try) })
		},
	},
}

func TestRecipesBehaveAsBefore(t *testing.T) {
	t.Parallel()
	for name, r := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(form func(d *eventLog, tw *timingwheel.TimingWheel)) (lines []event) {
				inBubble(t, func(tw *timingwheel.TimingWheel) {
					d := &eventLog{begun: time.Now()}
					form(d, tw)
					time.Sleep(time.Minute)
					synctest.Wait()
					lines = d.lines
				})
				return lines
			}
			want := run(func(d *eventLog, _ *timingwheel.TimingWheel) {
				if name == "a time to live" {
					d.note("made", true)
				}
				r.before(d)
			})
			got := run(r.after)
			assert.Equal(t, want, got)
			assert.Greater(t, len(got), 3)
		})
	}
}

// In a gossip protocol, a suspected member is declared dead after a timeout. Each confirmation
// shortens the timeout.

const (
	longest  = 100 * ms
	shortest = 20 * ms
)

type suspicionBefore struct {
	timer *time.Timer
	begun time.Time
}

func (s *suspicionBefore) begin(die func()) {
	s.begun, s.timer = time.Now(), time.AfterFunc(longest, die)
}

func (s *suspicionBefore) confirm(timeout time.Duration) bool {
	return s.timer.Stop() && !s.timer.Reset(timeout-time.Since(s.begun))
}

type suspicion struct {
	tw    *timingwheel.TimingWheel
	timer timingwheel.FuncTimer // before: *time.Timer
	begun time.Time
}

func (s *suspicion) begin(die func()) {
	s.begun = time.Now()
	s.timer.Init(s.tw, longest, die) // before: s.timer = time.AfterFunc(longest, die)
}

func (s *suspicion) confirm(timeout time.Duration) bool {
	return s.timer.Stop() && !s.timer.Reset(timeout-time.Since(s.begun))
}

func suspect(d *eventLog, s interface {
	begin(die func())
	confirm(timeout time.Duration) bool
}) {
	s.begin(func() { d.note("dead", true) })
	for timeout := longest; timeout >= shortest; timeout -= 20 * ms {
		time.Sleep(13 * ms)
		d.note("confirmed", s.confirm(timeout))
	}
}

// A net.Conn has deadlines although the transport below it has none. They are set, moved and
// removed.

type connBefore struct{ read *time.Timer }

func newConnBefore(interrupt func()) *connBefore {
	c := &connBefore{read: time.AfterFunc(time.Hour, interrupt)}
	c.read.Stop()
	return c
}

func (c *connBefore) SetReadDeadline(t time.Time) {
	if t.IsZero() {
		c.read.Stop()
		return
	}
	c.read.Reset(time.Until(t))
}

type conn struct {
	read timingwheel.FuncTimer
}

func newConn(tw *timingwheel.TimingWheel, interrupt func()) *conn {
	c := new(conn)
	c.read.InitStopped(tw, interrupt) // before: time.AfterFunc(time.Hour, interrupt), and Stop
	return c
}

func (c *conn) SetReadDeadline(t time.Time) {
	if t.IsZero() {
		c.read.Stop()
		return
	}
	c.read.Reset(time.Until(t))
}

func timeout(d *eventLog) func() { return func() { d.note("interrupted", true) } }

func setDeadlines(d *eventLog, c interface{ SetReadDeadline(t time.Time) }) {
	in := func(after time.Duration) { c.SetReadDeadline(time.Now().Add(after)) }
	in(20 * ms)
	time.Sleep(10 * ms)
	in(30 * ms)
	time.Sleep(10 * ms)
	in(5 * ms)
	time.Sleep(time.Second)
	in(10 * ms)
	time.Sleep(5 * ms)
	c.SetReadDeadline(time.Time{})
	time.Sleep(time.Second)
	in(-time.Second)
	time.Sleep(5 * ms)
	in(7 * ms)
	d.note("set", true)
}

// A connection pings a silent peer, and gives up if the ping is not answered.

const (
	idle = 30 * ms
	wait = 10 * ms
)

type peerBefore struct {
	mu     sync.Mutex
	timer  *time.Timer
	heard  time.Time
	pinged bool
	note   func(string, bool)
}

func newPeerBefore(note func(string, bool)) *peerBefore {
	p := &peerBefore{heard: time.Now(), note: note}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(idle, p.silent)
	return p
}

func (p *peerBefore) frame(pong bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now() // of every frame: a Reset for each would cost more
	if pong {
		p.pinged = false
		p.timer.Reset(idle)
	}
}

func (p *peerBefore) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := idle - time.Since(p.heard); left > 0 && !p.pinged {
		p.timer.Reset(left)
		return
	}
	if p.pinged {
		p.note("gave up", true)
		return
	}
	p.pinged = true
	p.note("ping", true)
	p.timer.Reset(wait)
}

type peer struct {
	mu     sync.Mutex
	timer  timingwheel.FuncTimer
	pinged bool
	note   func(string, bool)
}

func newPeer(tw *timingwheel.TimingWheel, note func(string, bool)) *peer {
	p := &peer{note: note}
	p.timer.Init(tw, idle, p.silent)
	return p
}

func (p *peer) frame(pong bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case pong:
		p.pinged = false
		p.timer.Reset(idle)
	case !p.pinged:
		p.timer.Touch() // before: heard = time.Now(), and silent had to look at it
	}
}

func (p *peer) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinged {
		p.note("gave up", true)
		return
	}
	p.pinged = true
	p.note("ping", true)
	p.timer.Reset(wait)
}

func speak(d *eventLog, p interface{ frame(pong bool) }) {
	for _, pause := range []time.Duration{5, 29, 17, 28} {
		time.Sleep(pause * ms)
		p.frame(false)
	}
	time.Sleep(37 * ms)
	p.frame(false) // no answer to the ping
	p.frame(true)
	time.Sleep(29 * ms)
	p.frame(false)
	time.Sleep(time.Second)
	d.note("spoke", true)
}

// A send waits for room in a queue, with a timer from a pool as the limit.

type senderBefore struct {
	timers sync.Pool
	queue  chan int
}

func newSenderBefore() *senderBefore {
	return &senderBefore{queue: make(chan int), timers: sync.Pool{New: func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}}}
}

func (s *senderBefore) send(v int) bool {
	timer := s.timers.Get().(*time.Timer)
	timer.Reset(wait)
	defer func() {
		if !timer.Stop() {
			select {
			case <-timer.C:
			default:
			}
		}
		s.timers.Put(timer)
	}()
	select {
	case s.queue <- v:
		return true
	case <-timer.C:
		return false
	}
}

func (s *senderBefore) receive() int { return <-s.queue }

type sender struct {
	timers sync.Pool // of *timingwheel.ChannelTimer; New is NewChannelTimer and Stop
	queue  chan int
}

func newSender(tw *timingwheel.TimingWheel) *sender {
	return &sender{queue: make(chan int), timers: sync.Pool{New: func() any {
		t := tw.NewChannelTimer(time.Hour)
		t.Stop()
		return t
	}}}
}

func (s *sender) send(v int) bool {
	timer := s.timers.Get().(*timingwheel.ChannelTimer)
	timer.Reset(wait)
	defer func() {
		timer.Stop() // before: and a select that empties the channel
		s.timers.Put(timer)
	}()
	select {
	case s.queue <- v:
		return true
	case <-timer.C:
		return false
	}
}

func (s *sender) receive() int { return <-s.queue }

func sendAll(d *eventLog, s interface {
	send(v int) bool
	receive() int
}) {
	for v := range 5 {
		if v%2 == 1 {
			go func() {
				time.Sleep(3 * ms)
				s.receive()
			}()
		}
		d.note("sent", s.send(v))
		time.Sleep(20 * ms)
	}
}

// The holder of a lease renews it before it expires.

type leaseBefore struct {
	mu    sync.Mutex
	timer *time.Timer
	gone  bool
}

func newLeaseBefore(expired func()) *leaseBefore {
	l := new(leaseBefore)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(idle, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.gone {
			l.gone = true
			expired()
		}
	})
	return l
}

func (l *leaseBefore) renew() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone && l.timer.Reset(idle) {
		return true
	}
	l.timer.Stop() // Reset has armed it
	return false
}

type lease struct {
	timer timingwheel.FuncTimer
}

func newLease(tw *timingwheel.TimingWheel, expired func()) *lease {
	l := new(lease)
	l.timer.Init(tw, idle, expired)
	return l
}

func (l *lease) renew() bool { return l.timer.Touch() } // before: Reset, which arms an expired one

func expiry(d *eventLog) func() { return func() { d.note("expired", true) } }

func useLease(d *eventLog, l interface{ renew() bool }) {
	for _, pause := range []time.Duration{10, 29, 1, 28, 31, 5, 50} {
		time.Sleep(pause * ms)
		d.note("renewed", l.renew())
	}
}

// A request is sent over a network that loses packets. It is sent again after growing intervals.

type requestBefore struct {
	mu       sync.Mutex
	timer    *time.Timer
	interval time.Duration
	answered bool
	send     func()
}

func newRequestBefore(send func()) *requestBefore {
	r := &requestBefore{interval: wait, send: send}
	r.transmit()
	return r
}

func (r *requestBefore) transmit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return
	}
	r.send()
	r.timer = time.AfterFunc(r.interval, r.transmit)
	r.interval *= 2
}

func (r *requestBefore) answer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
	r.timer.Stop()
}

type request struct {
	mu       sync.Mutex
	timer    timingwheel.FuncTimer
	interval time.Duration
	answered bool
	send     func()
}

func newRequest(tw *timingwheel.TimingWheel, send func()) *request {
	r := &request{interval: wait, send: send}
	r.timer.InitStopped(tw, r.transmit)
	r.transmit()
	return r
}

func (r *request) transmit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return // the answer came while the timer fired
	}
	r.send()
	r.timer.Reset(r.interval) // before: r.timer = time.AfterFunc(r.interval, r.transmit)
	r.interval *= 2
}

func (r *request) answer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
	r.timer.Stop()
}

func sending(d *eventLog) func() { return func() { d.note("sent", true) } }

func transmit(d *eventLog, r interface{ answer() }) {
	time.Sleep(100 * ms)
	r.answer()
	d.note("answered", true)
}

// A batch is exported when it is full or when a timeout has passed.

const full = 3

func collectBefore(queue <-chan int, export func([]int)) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var batch []int
	for {
		select {
		case <-timer.C:
		case v, ok := <-queue:
			if !ok {
				return
			}
			if batch = append(batch, v); len(batch) < full {
				continue
			}
			if !timer.Stop() {
				select {
				case <-timer.C:
				default:
				}
			}
		}
		export(batch)
		batch = nil
		timer.Reset(wait)
	}
}

func collect(tw *timingwheel.TimingWheel, queue <-chan int, export func([]int)) {
	timer := tw.NewChannelTimer(wait) // before: time.NewTimer(wait)
	defer timer.Stop()
	var batch []int
	for {
		select {
		case <-timer.C:
		case v, ok := <-queue:
			if !ok {
				return
			}
			if batch = append(batch, v); len(batch) < full {
				continue // before, after this: if !timer.Stop() { drain it }
			}
		}
		export(batch)
		batch = nil
		timer.Reset(wait)
	}
}

func produce(d *eventLog, collect func(queue <-chan int, export func([]int))) {
	queue := make(chan int)
	defer close(queue)
	go collect(queue, func(batch []int) { d.note("exported", len(batch) == full) })
	for v := range 20 {
		queue <- v
		time.Sleep(time.Duration(v%7) * ms)
	}
	time.Sleep(50 * ms)
}

// The values of a cache expire.

type cacheBefore struct {
	mu     sync.Mutex
	values map[string]dated
	stop   chan struct{}
}

type dated struct {
	value   int
	expires time.Time
}

func newCacheBefore() *cacheBefore {
	c := &cacheBefore{values: map[string]dated{}, stop: make(chan struct{})}
	go c.clean()
	return c
}

func (c *cacheBefore) clean() {
	ticker := time.NewTicker(ms)
	defer ticker.Stop()
	for {
		select {
		case <-c.stop:
			return
		case now := <-ticker.C:
			c.mu.Lock()
			for key, v := range c.values { // all of them, in each tick
				if !now.Before(v.expires) {
					delete(c.values, key)
				}
			}
			c.mu.Unlock()
		}
	}
}

func (c *cacheBefore) Set(key string, value int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[key] = dated{value, time.Now().Add(d)}
}

func (c *cacheBefore) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.values)
}

func (c *cacheBefore) Close() { close(c.stop) }

type cache struct {
	mu     sync.Mutex
	values map[string]int
	keys   *keyed.Keys[string] // before: a goroutine that looks at all values again and again
}

func newCache() (c *cache, err error) {
	c = &cache{values: map[string]int{}}
	c.keys, err = keyed.New(timingwheel.Options{}, c.expire)
	return c, err
}

func (c *cache) Set(key string, value int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[key] = value
	c.keys.Set(key, d) // under mu: both maps change in the same order
}

func (c *cache) expire(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if !c.keys.Has(key) { // else it was set anew meanwhile
			delete(c.values, key)
		}
	}
}

func (c *cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.values)
}

func (c *cache) Close() { c.keys.Stop() }

func fill(d *eventLog, c interface {
	Set(key string, value int, d time.Duration)
	Len() int
	Close()
}) {
	for i := range 50 {
		c.Set(string(rune('a'+i%20)), i, time.Duration(10+i%13)*ms)
		time.Sleep(ms)
		synctest.Wait()
		d.note(fmt.Sprint("set, values: ", c.Len()), true)
	}
	time.Sleep(30 * ms)
	synctest.Wait()
	d.note("all have expired", c.Len() == 0)
	c.Close()
}

// Each attempt of a call has a time limit, and a pause follows.

var errTimeout = errors.New("timeout")

type attempt func(ctx context.Context) error

func callBefore(ctx context.Context, try attempt) (err error) {
	for delay := wait; delay <= 4*wait; delay *= 2 {
		limited, cancel := context.WithTimeoutCause(ctx, idle, errTimeout)
		err = try(limited)
		cancel()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return err
}

func call(ctx context.Context, tw *timingwheel.TimingWheel, try attempt) (err error) {
	for delay := wait; delay <= 4*wait; delay *= 2 {
		limited, cancel := context.WithCancelCause(ctx)
		limit := tw.AfterFunc(idle, func() { cancel(errTimeout) })
		err = try(limited)
		limit.Stop()
		cancel(nil)
		if err == nil {
			return nil
		}
		if err := tw.Sleep(ctx, delay); err != nil { // before: a timer, and a select with ctx.Done()
			return err
		}
	}
	return err
}

func callAll(d *eventLog, call func(ctx context.Context, try attempt) error) {
	for _, took := range [][]time.Duration{{5}, {50, 5}, {50, 50, 29}, {50, 50, 50}} {
		attempts := 0
		try := func(ctx context.Context) error {
			attempts++
			select {
			case <-time.After(took[attempts-1] * ms):
				return nil
			case <-ctx.Done():
				d.note("timeout", errors.Is(context.Cause(ctx), errTimeout))
				return context.Cause(ctx)
			}
		}
		err := call(context.Background(), try)
		d.note("returned", err == nil)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			time.Sleep(35 * ms)
			cancel()
		}()
		attempts = 0
		d.note("cancelled", errors.Is(call(ctx, try), context.Canceled))
		<-ctx.Done()
	}
}

// The code in docs/migrating.md is in this file, so it compiles and is tested.
func TestRecipesOfTheDocumentAreInThisFile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	code, err := os.ReadFile("recipes_test.go")
	require.NoError(t, err)
	_, text, found := cutBetween(text, "\n## Recipes\n", "\n## ")
	require.True(t, found)
	blocks := docsnippet.All(string(text))
	assert.GreaterOrEqual(t, len(blocks), 6)
	for _, b := range blocks {
		assert.True(t, docsnippet.InOneOf([]string{string(code)}, b), "code that is not in this file:\n%s", b)
	}
}

func cutBetween(text []byte, from, to string) (before, between []byte, found bool) {
	b, rest, found := strings.Cut(string(text), from)
	rest, _, ended := strings.Cut(rest, to)
	return []byte(b), []byte(rest), found && ended
}
