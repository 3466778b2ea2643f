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

// config is what one run is asked to do.
type config struct {
	n                    int
	beat, stop, expire   float64       // percent of the timers
	window               time.Duration // in which they expire; 0: see expireWindow
	lead                 time.Duration // from the first arming until the first deadline; 0: see leadFor
	workers              int           // goroutines that arm, beat and stop
	seed                 uint64        // 0: one from the clock
	patience             time.Duration // how long to wait for what should have expired already
	newWheel             makeWheel     // tests put broken ones here
	calibrate, calibrant int           // how often and with how many timers the small wheel is filled
}

const (
	// A shard of a wheel holds 2^29 timers, and a goroutine mostly adds to one shard.
	maxTimers  = 1 << 29
	maxWorkers = 1024

	maxWindow = 10 * time.Minute
	maxLead   = 30 * time.Minute
)

func defaults() config {
	return config{
		n:         100_000_000,
		beat:      20,
		stop:      5,
		expire:    10,
		workers:   runtime.GOMAXPROCS(0),
		patience:  10 * time.Second,
		calibrate: 3,
		calibrant: 1_000_000,
		newWheel: func(expire func([]uint64)) (wheel, error) {
			return timingwheel.NewTimeouts(timingwheel.Options{}, expire)
		},
	}
}

// parse reads the command line; args[0] is the program's name. It returns false if there is nothing
// to run since the help was asked for, and printed.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = defaults()
	ok, err = option.Command{
		Name:  "hundredmillion",
		Usage: "a hundred million timers on one wheel: armed, beaten, stopped, expired, and checked",
		Flags: options(&cfg),
	}.Parse(args, help, func() error { return cfg.validate() })
	return cfg, ok, err
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.New("n", "arm `n` timers; one shard of a wheel holds 2^29",
			option.Within(&cfg.n, strconv.Atoi, 1, maxTimers, "a whole number")),
		option.Percent("beat", &cfg.beat, "beat this `percent` of the timers before they are due"),
		option.Percent("stop", &cfg.stop, "stop this `percent`"),
		option.Percent("expire", &cfg.expire, "let this `percent` expire"),
		option.New("window", "let them expire within this `time`, 0 for 2 µs each and at least 2 s",
			option.Within(&cfg.window, time.ParseDuration, 0, maxWindow, "a time")),
		option.New("lead", "leave this `time` to arming, beating and stopping before the first one is due, "+
			"0 to decide after a small trial",
			option.Within(&cfg.lead, time.ParseDuration, 0, maxLead, "a time")),
		option.New("workers", "arm, beat and stop on this `number` of goroutines",
			option.Within(&cfg.workers, strconv.Atoi, 1, maxWorkers, "a whole number")),
		option.Seed(&cfg.seed, "draw what becomes of each timer from the seed `n`, 0 for another one each time"),
	}
}

// validate checks what no option can know alone.
func (cfg config) validate() error {
	if sum := cfg.beat + cfg.stop + cfg.expire; sum > 100 {
		return fmt.Errorf("-beat %v, -stop %v and -expire %v are %v percent together: must be at most 100",
			cfg.beat, cfg.stop, cfg.expire, sum)
	}
	return nil
}

// handled is the share of the timers of which a handle is kept.
func (cfg config) handled() float64 { return (cfg.beat + cfg.stop) / 100 }

// expireWindow is the time in which timers expire: half a million in each second leaves two
// processors some air.
func (cfg config) expireWindow() time.Duration {
	if cfg.window > 0 {
		return cfg.window
	}
	each := float64(2 * time.Microsecond)
	return max(2*time.Second, time.Duration(float64(cfg.n)*cfg.expire/100*each))
}

// leadFor is the time until the first deadline, given what arming one timer of a small wheel takes:
// in a large one it may take twice as long, and to shuffle and beat one four times that; the rest
// is for a machine that has other things to do. If the time is too short after all, what is due
// before it is beaten expires. That is right, but is not what is to be shown.
func (cfg config) leadFor(each time.Duration) time.Duration {
	if cfg.lead > 0 {
		return cfg.lead
	}
	each = max(each, 100*time.Nanosecond)
	all := float64(each) * float64(cfg.n) / float64(cfg.parallel())
	return min(2*time.Second+time.Duration(all*(2+8*cfg.handled())), maxLead)
}

// parallel is how many of the workers run at a time.
func (cfg config) parallel() int { return min(cfg.workers, runtime.GOMAXPROCS(0)) }
