package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
	"go.uber.org/atomic"
)

// outcome is what a run leaves behind.
type outcome struct {
	cfg         config
	verdict     verdict
	interrupted bool
	took        time.Duration
	stalls      []span
	beats       int64
	saved       int64
	spared      int64
	fired       int64
	lateness    []time.Duration // of the timeouts that passed: 50th and 99th percentile, the latest
	peak        sample
	cpu         time.Duration // of the process
	heap        uint64        // bytes in use when all were connected; only for -compare
	summary     string        // of the implementation
}

// run lets the clients loose on the server, waits for their end, and judges the server. An error
// means that there was nothing to judge. When ctx ends everything ends at once, and what had
// happened by then is judged.
func run(ctx context.Context, cfg config, show display) (*outcome, error) {
	impl, err := cfg.newImplementation()
	if err != nil {
		return nil, err
	}
	defer impl.stop()
	begin := time.Now()
	measured, endMeasuring := context.WithCancel(context.Background())
	defer endMeasuring()
	st := measureStalls(measured)
	srv, err := newServer(impl, cmp.Or(cfg.cutAfter, cfg.timeout), cfg.bound/2, st)
	if err != nil {
		return nil, err
	}
	defer srv.close()

	f := newField(cfg, srv)
	cpu := processor.Time()
	show.begin(f)
	w := startWatch(f, show)
	err = f.play(ctx)
	settled := srv.settle(f.connected(), cfg.patience)
	cpu = processor.Time() - cpu
	endMeasuring()
	peak := w.end()
	if err != nil {
		return nil, err
	}
	out := &outcome{cfg: cfg, interrupted: ctx.Err() != nil, took: time.Since(begin), stalls: st.merged(), peak: peak, cpu: cpu, heap: f.heap}
	out.judge(f, settled)
	return out, nil
}

// judge checks the clients' accounts, and what the server itself must have kept.
func (o *outcome) judge(f *field, settled bool) {
	srv := f.srv
	o.beats, o.saved, o.spared = srv.beats.Load(), srv.saved.Load(), srv.spared.Load()
	o.fired, o.lateness = srv.late(50, 99, 100)
	o.summary = srv.impl.summary()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	o.verdict = check(evidence{f.cfg.timeout, f.cfg.bound, f.accounts(), srv.endings, o.stalls, f.cfg.cuts()})
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			o.verdict.faults = append(o.verdict.faults, fmt.Sprintf(format, args...))
		}
	}
	fault(srv.early.Load() > 0, "%d timers fired before their deadline", srv.early.Load())
	fault(!settled, "at the end the server has accepted %d of %d connections and holds %d, with %d timers pending",
		srv.accepted.Load(), f.connected(), srv.open.Load(), srv.impl.pending())
}

// field is the server and its clients.
type field struct {
	cfg     config
	srv     *server
	plans   []plan
	clients []*client
	started atomic.Time
	heap    uint64 // see outcome
}

func newField(cfg config, srv *server) *field {
	f := &field{cfg: cfg, srv: srv, plans: newPlans(cfg)}
	for i, p := range f.plans {
		f.clients = append(f.clients, newClient(cfg, i, p, &f.started))
	}
	return f
}

// play connects the clients, starts the clock of their plans, and returns when all of them have
// left.
func (f *field) play(parent context.Context) error {
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	go func() {
		if err := f.srv.serve(); err != nil {
			fail(fmt.Errorf("accepting connections: %w", err))
		}
	}()
	var playing sync.WaitGroup
	f.connect(ctx, fail, &playing)
	if f.cfg.compare {
		runtime.GC()
		f.heap, _ = measureProcess()
	}
	f.started.Store(time.Now())
	playing.Wait()
	if cause := context.Cause(ctx); cause != nil && parent.Err() == nil {
		return cause
	}
	return nil
}

// connectAtOnce is how many clients may be ahead of the server's accepting: more could overflow the
// kernel's queue, which holds 128 on some systems.
const connectAtOnce = 100

// connect connects the clients and starts each at once, since the server's timeouts run from then
// on. It returns when the server has accepted all of them, or early when ctx ends.
func (f *field) connect(ctx context.Context, fail context.CancelCauseFunc, playing *sync.WaitGroup) {
	to := f.srv.listener.Addr().(*net.TCPAddr)
	accepted := func(least int) bool {
		for ctx.Err() == nil && f.srv.accepted.Load() < int64(least) {
			time.Sleep(time.Millisecond)
		}
		return ctx.Err() == nil
	}
	for i, c := range f.clients {
		if !accepted(i + 1 - connectAtOnce) {
			return
		}
		playing.Go(func() {
			if err := c.connect(to); err != nil {
				fail(fmt.Errorf("connecting a client: %w", err))
				return
			}
			c.run(ctx)
		})
	}
	accepted(len(f.clients))
}

// connected returns how many clients were connected; they must have left.
func (f *field) connected() (n int) {
	for _, c := range f.clients {
		if c.conn != nil {
			n++
		}
	}
	return n
}

// accounts returns what the clients know; they must have left.
func (f *field) accounts() []account {
	as := make([]account, 0, len(f.clients))
	for _, c := range f.clients {
		as = append(as, c.account)
	}
	return as
}
