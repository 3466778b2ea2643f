package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// armers is the number of goroutines that arm a flow, so that an implementation with timers for
	// each processor or shard has some on each.
	armers = 4

	// farAhead is the time until far timers are due, which is after the measurement.
	farAhead = time.Minute
)

// plan describes a flow.
type plan struct {
	offsets []time.Duration // when each timer is due, from the beginning of the flow
	span    time.Duration   // upper bound of the offsets
	work    func()          // called by each callback after it has recorded its lateness; may be nil
	far     int             // number of additional timers that are due in farAhead
}

// flow is a stream of timers that are due while processors are busy.
type flow[H any] struct {
	*Roll
	plan
	timers       Timers[H]
	began        time.Time       // when arming began
	begin        time.Time       // the beginning of the flow
	late         []time.Duration // the lateness of each timer, without the far timers
	handles      []H             // the handles of far timers come last
	farCalls     atomic.Int64
	stopSpinning func() // ends the spinning goroutines
}

// startFlow arms the timers of p while the processors are idle and then starts the spinning
// goroutines. It returns before the first timer is due.
func startFlow[H any](open Open[H], c Config, p plan) (*flow[H], error) {
	var f *flow[H]
	n := len(p.offsets) + p.far
	first := 50*time.Millisecond + time.Duration(n)*2*time.Microsecond
	err := InTime(n, first, func(ahead time.Duration) (armed int, err error) {
		f, armed, err = armFlow(open, c, p, ahead)
		return armed, err
	})
	return f, err
}

// armFlow is startFlow with a given time until the beginning of the flow.
func armFlow[H any](open Open[H], c Config, p plan, ahead time.Duration) (*flow[H], int, error) {
	n := len(p.offsets)
	f := &flow[H]{Roll: NewRoll(n), plan: p, late: make([]time.Duration, n), handles: make([]H, n+p.far)}
	horizon := ahead + p.span
	if p.far > 0 {
		horizon = max(horizon, farAhead)
	}
	timers, err := open(horizon+time.Second, f.fire)
	if err != nil {
		return nil, 0, err
	}
	c.phase("arming %d timers", len(f.handles))
	f.timers, f.began = timers, time.Now()
	f.begin = f.began.Add(ahead)
	by := f.arm()
	armed := 0
	for _, n := range by {
		armed += n
	}
	if armed == len(f.handles) {
		if !c.KeepGarbage {
			runtime.GC()
		}
		f.stopSpinning = Spin(c.Busy)
		if time.Now().Before(f.begin) {
			c.phase("waiting until %d callbacks have run", n)
			return f, armed, nil
		}
		f.stopSpinning()
	}
	f.disarm(by)
	return nil, armed, ErrTooSlow
}

// arm arms all timers and returns how many each armer has armed. It gives up at the beginning of
// the flow.
func (f *flow[H]) arm() (by [armers]int) {
	var running sync.WaitGroup
	for armer := range armers {
		running.Go(func() {
			for id := armer; id < len(f.handles); id += armers {
				if by[armer]%256 == 0 && time.Now().After(f.begin) {
					return
				}
				f.handles[id] = f.timers.After(f.delay(id), uint64(id), func() { f.fire(uint64(id)) })
				by[armer]++
			}
		})
	}
	running.Wait()
	return by
}

// disarm stops the timers that arm has armed and closes the implementation.
func (f *flow[H]) disarm(by [armers]int) {
	for armer, n := range by {
		for k := range n {
			f.timers.Stop(f.handles[armer+k*armers])
		}
	}
	f.timers.Close()
}

func (f *flow[H]) delay(id int) time.Duration {
	if id >= len(f.offsets) {
		return farAhead
	}
	return time.Until(f.begin.Add(f.offsets[id]))
}

// fire is the callback of timer id.
func (f *flow[H]) fire(id uint64) {
	if id >= uint64(len(f.offsets)) {
		f.farCalls.Add(1)
		return
	}
	late := time.Since(f.begin.Add(f.offsets[id]))
	f.late[id] = late
	if late < 0 {
		f.Early.Add(1)
	}
	if f.work != nil {
		f.work()
	}
	f.Call(id)
}

// end waits for the missing callbacks, none of which is due later than span, and stops the spinning
// goroutines and the implementation. It returns the mistakes.
func (f *flow[H]) end(grace time.Duration) []Figure {
	f.Wait(max(0, time.Until(f.begin.Add(f.span))) + grace)
	f.stopSpinning()
	if time.Since(f.began) < farAhead {
		f.Early.Add(f.farCalls.Load())
	}
	mistakes := f.Mistakes()
	f.timers.Close()
	return mistakes
}
