package bench

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	streamRate  = 10_000                // callbacks per second of BusyStream
	streamSleep = 5 * time.Millisecond  // duration of each of these callbacks
	spreadRate  = 100_000               // callbacks per second of BusySpread
	blockedLead = 50 * time.Millisecond // from arming until the quick callback is due
	blockedGap  = time.Millisecond      // from the blocking callbacks to the quick one
)

// BusyBlocked measures the lateness of a quick callback that is due right after c.N callbacks,
// which block until the quick one has run. All of them are armed together, blockedLead ahead.
func BusyBlocked[H any](open Open[H], c Config) ([]Figure, error) {
	return blockedRounds(open, c, func() {})
}

// BusyBlockedWaking is BusyBlocked, but each of the c.N callbacks wakes another goroutine before it
// blocks. The scheduler runs that goroutine next, in place of a goroutine that the implementation
// has started for the callbacks that follow.
func BusyBlockedWaking[H any](open Open[H], c Config) ([]Figure, error) {
	signals, quit := make(chan struct{}, 1), make(chan struct{})
	defer close(quit)
	go func() {
		for {
			select {
			case <-signals:
			case <-quit:
				return
			}
		}
	}()
	return blockedRounds(open, c, func() {
		select {
		case signals <- struct{}{}:
		default:
		}
	})
}

// blockedRounds is BusyBlocked with callbacks that call wake before they block.
func blockedRounds[H any](open Open[H], c Config, wake func()) ([]Figure, error) {
	timers, err := open(time.Second, func(uint64) {})
	if err != nil {
		return nil, err
	}
	defer timers.Close()
	defer Spin(c.Busy)()
	late := make([]time.Duration, c.Rounds)
	for i := range late {
		c.phase("waiting for a callback behind %d that block", c.N)
		const tries = 100
		err := ErrTooSlow
		for try := 0; try < tries && errors.Is(err, ErrTooSlow); try++ {
			late[i], err = blockedRound(timers, c, wake)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(late)
	total := time.Duration(0)
	for _, l := range late {
		total += l
	}
	return []Figure{
		milliseconds(total/time.Duration(c.Rounds), "late-ms"),
		milliseconds(Quantile(late, 1), "late-max-ms"),
		{float64(early(late)), "early"},
	}, nil
}

var errBlocked = errors.New("a quick callback does not run while others block")

// blockedRound returns the lateness of the quick callback, or ErrTooSlow if the blocking callbacks
// were due before all had been armed.
func blockedRound[H any](timers Timers[H], c Config, wake func()) (time.Duration, error) {
	release := make(chan struct{})
	var blocked sync.WaitGroup
	blocked.Add(c.N)
	ran := make(chan time.Time, 1)
	runtime.Gosched() // arming begins with a new time slice, which is long enough to arm all timers
	due := time.Now().Add(blockedLead)
	before := due.Add(-blockedGap)
	for id := range c.N {
		timers.After(time.Until(before), uint64(id), func() { wake(); <-release; blocked.Done() })
	}
	timers.After(time.Until(due), uint64(c.N), func() { ran <- time.Now() })
	slow := time.Now().After(before)
	select {
	case at := <-ran:
		close(release)
		blocked.Wait()
		if slow {
			return 0, ErrTooSlow
		}
		return at.Sub(due), nil
	case <-time.After(blockedLead + c.Grace):
		close(release)
		return 0, errBlocked
	}
}

// BusyStream measures the lateness of c.N callbacks, streamRate per second, each of which sleeps
// for streamSleep. All timers are armed in advance.
func BusyStream[H any](open Open[H], c Config) ([]Figure, error) {
	offsets := make([]time.Duration, c.N)
	for i := range offsets {
		offsets[i] = time.Duration(i) * time.Second / streamRate
	}
	p := plan{offsets: offsets, span: durationOf(c.N, streamRate), work: func() { time.Sleep(streamSleep) }}
	return latenesses(open, c, p)
}

// BusySpread measures the lateness of c.N quick callbacks that are due at random times, spreadRate
// per second. All timers are armed in advance.
func BusySpread[H any](open Open[H], c Config) ([]Figure, error) {
	span := durationOf(c.N, spreadRate)
	return latenesses(open, c, plan{offsets: atRandom(c.N, span), span: span})
}

// latenesses runs a flow and returns its figures.
func latenesses[H any](open Open[H], c Config, p plan) ([]Figure, error) {
	f, err := startFlow(open, c, p)
	if err != nil {
		return nil, err
	}
	mistakes := f.end(c.Grace)
	if f.Left() > 0 {
		return mistakes, nil
	}
	slices.Sort(f.late)
	return append([]Figure{
		milliseconds(Quantile(f.late, 0.5), "late-p50-ms"),
		milliseconds(Quantile(f.late, 0.99), "late-p99-ms"),
		milliseconds(Quantile(f.late, 1), "late-max-ms"),
	}, mistakes...), nil
}

// durationOf returns the duration of n events at rate per second.
func durationOf(n, rate int) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}

// atRandom returns n random offsets below span. They are the same in every run.
func atRandom(n int, span time.Duration) []time.Duration {
	random := rand.New(rand.NewPCG(3, uint64(n)))
	offsets := make([]time.Duration, n)
	for i := range offsets {
		offsets[i] = time.Duration(random.Int64N(int64(span)))
	}
	return offsets
}
