package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/urfave/cli/v3"
)

// config holds the options of one run.
type config struct {
	n                   int
	beat, stop, expire  float64       // percentages of the timers
	window              time.Duration // in which timers expire; 0: see expireWindow
	lead                time.Duration // until the first deadline; 0: see leadTime
	workers             int           // goroutines that arm, beat and stop
	seed                uint64        // 0: from the clock
	maxWait             time.Duration // for timers that should have expired
	newWheel            makeWheel     // tests replace it
	trials, trialTimers int           // number of trials with a small wheel, and its timers
}

const (
	// A shard of a wheel holds 2^29 timers, and a goroutine mostly adds timers to one shard.
	maxTimers  = 1 << 29
	maxWorkers = 1024

	maxWindow = 10 * time.Minute
	maxLead   = 30 * time.Minute
)

func defaults() config {
	return config{
		n:           100_000_000,
		beat:        20,
		stop:        5,
		expire:      10,
		workers:     runtime.GOMAXPROCS(0),
		maxWait:     10 * time.Second,
		trials:      3,
		trialTimers: 1_000_000,
		newWheel: func(expire func([]uint64)) (wheel, error) {
			return timingwheel.NewTimeouts(timingwheel.Options{}, expire)
		},
	}
}

// parse parses the command line. args[0] is the name of the program. parse returns false if it has
// only printed the help text.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = defaults()
	ok, err = option.Command{
		Name:  "hundredmillion",
		Usage: "a hundred million timers on one wheel: armed, beaten, stopped, expired and checked",
		Flags: options(&cfg),
	}.Parse(args, help, func() error { return cfg.validate() })
	return cfg, ok, err
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.New("n", "`number` of timers; one shard of a wheel holds 2^29",
			option.Within(&cfg.n, strconv.Atoi, 1, maxTimers, "a whole number")),
		option.Percent("beat", &cfg.beat, "`percentage` of timers that are beaten (postponed) before they are due"),
		option.Percent("stop", &cfg.stop, "`percentage` of timers that are stopped"),
		option.Percent("expire", &cfg.expire, "`percentage` of timers that expire"),
		option.New("window", "`time` in which they expire; 0: 2 µs for each, at least 2 s",
			option.Within(&cfg.window, time.ParseDuration, 0, maxWindow, "a time")),
		option.New("lead", "`time` for arming, beating and stopping before the first timer is due; "+
			"0: determined by a trial",
			option.Within(&cfg.lead, time.ParseDuration, 0, maxLead, "a time")),
		option.New("workers", "`number` of goroutines that arm, beat and stop",
			option.Within(&cfg.workers, strconv.Atoi, 1, maxWorkers, "a whole number")),
		option.Seed(&cfg.seed, "random `seed` of the plan; 0: from the clock"),
	}
}

// validate checks constraints between options.
func (cfg config) validate() error {
	if sum := cfg.beat + cfg.stop + cfg.expire; sum > 100 {
		return fmt.Errorf("-beat %v, -stop %v and -expire %v add up to %v percent; the sum must be at most 100",
			cfg.beat, cfg.stop, cfg.expire, sum)
	}
	return nil
}

// handleShare returns the share of timers whose handles are kept.
func (cfg config) handleShare() float64 { return (cfg.beat + cfg.stop) / 100 }

// expireWindow returns the time in which timers expire. Half a million per second does not saturate
// two processors.
func (cfg config) expireWindow() time.Duration {
	if cfg.window > 0 {
		return cfg.window
	}
	each := float64(2 * time.Microsecond)
	return max(2*time.Second, time.Duration(float64(cfg.n)*cfg.expire/100*each))
}

// leadTime returns the time until the first deadline, given the time for arming one timer of a
// small wheel. Arming one in a large wheel may take twice as long, and shuffling and beating one
// four times that. The rest is for a machine with other load. If the time is too short, timers that
// are due before their beat expire. That is correct, but not what the example should show.
func (cfg config) leadTime(each time.Duration) time.Duration {
	if cfg.lead > 0 {
		return cfg.lead
	}
	each = max(each, 100*time.Nanosecond)
	all := float64(each) * float64(cfg.n) / float64(cfg.parallel())
	return min(2*time.Second+time.Duration(all*(2+8*cfg.handleShare())), maxLead)
}

// parallel returns the number of workers that run in parallel.
func (cfg config) parallel() int { return min(cfg.workers, runtime.GOMAXPROCS(0)) }
