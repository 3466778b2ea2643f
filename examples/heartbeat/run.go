package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/processor"
	"go.uber.org/atomic"
)

// result is the result of a run.
type result struct {
	cfg         config
	verdict     verdict
	interrupted bool
	took        time.Duration
	stalls      []span
	beats       int64
	keptByBeat  int64
	keptByStall int64
	fired       int64           // timeouts that passed
	lateness    []time.Duration // of the timeouts that passed: 50th and 99th percentile, and the maximum
	peak        sample
	cpu         time.Duration // of the process; 0 if the system does not report it
	heap        uint64        // bytes after all clients had connected; only for -compare
	summary     string        // of the implementation
}

// run runs a server and its clients until all clients have left, and judges the server. If ctx
// ends, the run ends immediately and is judged up to then. run returns an error if there is nothing
// to judge.
func run(ctx context.Context, cfg config, show display) (*result, error) {
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

	sim := newSimulation(cfg, srv)
	cpu := processor.Time()
	show.begin(sim)
	samples := startSampler(sim, show)
	err = sim.run(ctx)
	idle := srv.waitUntilIdle(sim.connected(), cfg.patience)
	cpu = processor.Time() - cpu
	endMeasuring()
	peak := samples.end()
	if err != nil {
		return nil, err
	}
	res := &result{cfg: cfg, interrupted: ctx.Err() != nil, took: time.Since(begin), stalls: st.merged(), peak: peak, cpu: cpu, heap: sim.heap}
	res.judge(sim, idle)
	return res, nil
}

// judge checks the records of the clients and the state of the server after the run.
func (res *result) judge(sim *simulation, idle bool) {
	srv := sim.srv
	res.beats, res.keptByBeat, res.keptByStall = srv.beats.Load(), srv.keptByBeat.Load(), srv.keptByStall.Load()
	res.fired, res.lateness = srv.late(50, 99, 100)
	res.summary = srv.impl.summary()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	res.verdict = check(checkInput{sim.cfg.timeout, sim.cfg.bound, sim.records(), srv.ends, res.stalls, sim.cfg.hasTimeouts()})
	fault := func(format string, args ...any) {
		res.verdict.faults = append(res.verdict.faults, fmt.Sprintf(format, args...))
	}
	if early := srv.early.Load(); early > 0 {
		fault("%d timeouts passed before their deadline", early)
	}
	if !idle {
		fault("after the run the server has accepted %d of %d connections, %d are open, and %s timers are pending",
			srv.accepted.Load(), sim.connected(), srv.open.Load(), formatPending(srv.impl.pending()))
	}
}

// simulation is a server and its clients.
type simulation struct {
	cfg     config
	srv     *server
	clients []*client
	started atomic.Time // when all clients were connected; zero until then
	heap    uint64      // see result
}

func newSimulation(cfg config, srv *server) *simulation {
	sim := &simulation{cfg: cfg, srv: srv}
	for i, p := range newPlans(cfg) {
		sim.clients = append(sim.clients, newClient(cfg, i, p, &sim.started))
	}
	return sim
}

// run connects the clients, starts their plans, and returns when all clients have left.
func (sim *simulation) run(parent context.Context) error {
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	go func() {
		if err := sim.srv.serve(); err != nil {
			fail(fmt.Errorf("accepting connections: %w", err))
		}
	}()
	var running sync.WaitGroup
	sim.connect(ctx, fail, &running)
	if sim.cfg.compare {
		runtime.GC()
		sim.heap, _ = measureProcess()
	}
	sim.started.Store(time.Now())
	running.Wait()
	if cause := context.Cause(ctx); cause != nil && parent.Err() == nil {
		return cause
	}
	return nil
}

// maxAhead is the number of clients that may have connected without being accepted. More could
// overflow the kernel's accept queue, which holds 128 connections on some systems.
const maxAhead = 100

// connect connects the clients. Each begins to send beats immediately, because the server's timeout
// is already running. connect returns when the server has accepted all clients, or when ctx ends.
func (sim *simulation) connect(ctx context.Context, fail context.CancelCauseFunc, running *sync.WaitGroup) {
	to := sim.srv.listener.Addr().(*net.TCPAddr)
	waitAccepted := func(least int) bool {
		for ctx.Err() == nil && sim.srv.accepted.Load() < int64(least) {
			time.Sleep(time.Millisecond)
		}
		return ctx.Err() == nil
	}
	for i, c := range sim.clients {
		if !waitAccepted(i + 1 - maxAhead) {
			return
		}
		running.Go(func() {
			if err := c.connect(to); err != nil {
				fail(fmt.Errorf("connecting a client: %w", err))
				return
			}
			c.run(ctx)
		})
	}
	waitAccepted(len(sim.clients))
}

// connected returns the number of clients that connected. All clients must have left.
func (sim *simulation) connected() (n int) {
	for _, c := range sim.clients {
		if c.conn != nil {
			n++
		}
	}
	return n
}

// records returns the records of the clients. All clients must have left.
func (sim *simulation) records() []clientRecord {
	records := make([]clientRecord, 0, len(sim.clients))
	for _, c := range sim.clients {
		records = append(records, c.record)
	}
	return records
}

// compare runs the same clients against each implementation and prints a table of the runs. The
// first run and the last run have no timeouts, so their difference shows the noise of the
// measurement. If ctx ends or a run fails, the table has the runs until then.
func compare(ctx context.Context, cfg config, w io.Writer) (right bool, err error) {
	printSettings(w, cfg)
	impls := slices.Concat([]string{none}, implementations, []string{none})
	fmt.Fprintf(w, "%s in turn: %s\n", figures.Plural(len(impls), "run"), strings.Join(impls, ", "))
	var results []*result
	for _, cfg.impl = range impls {
		runtime.GC() // collect the garbage of the previous run
		var res *result
		if res, err = run(ctx, cfg, newDisplay(w)); err != nil {
			break
		}
		if !res.right() {
			res.printVerdict(w)
		}
		results = append(results, res)
		if res.interrupted {
			break
		}
	}
	if len(results) > 0 {
		printComparison(w, results)
	}
	return !slices.ContainsFunc(results, func(res *result) bool { return !res.right() }), err
}
