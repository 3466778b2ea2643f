package main

import (
	"math/rand/v2"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/timingwheel-go/timingwheel"
)

const (
	backoff  = 500 * time.Millisecond // doubles with each attempt
	attempts = 8
	failing  = 0.6 // share of attempts that fail
)

// jobs are retries with backoff, and plans.
type jobs struct{ wheel *timingwheel.TimingWheel }

func newJobs() (*jobs, error) {
	tw, err := timingwheel.New(timingwheel.Options{Tick: 5 * time.Millisecond, WheelSize: 64, Levels: 5, ProfileRate: 512})
	if err != nil {
		return nil, err
	}
	j := &jobs{wheel: tw}
	for _, when := range []string{"30 2 * * SUN", "0 9 * * MON-FRI", "@hourly", "*/5 * * * *", "@every 1s"} {
		schedule, err := cron.ParseStandard(when)
		if err != nil {
			return nil, err
		}
		tw.ScheduleFunc(schedule, func() {})
	}
	tw.ScheduleFunc(timingwheel.Every(250*time.Millisecond), func() {})
	return j, nil
}

// retry arms the timer of an attempt. An attempt that fails is followed by another one, up to the
// limit.
func (j *jobs) retry(attempt int) {
	delay := backoff << attempt
	j.wheel.AfterFunc(delay/2+rand.N(delay), func() {
		if attempt < attempts && rand.Float64() < failing {
			j.retry(attempt + 1)
		}
	})
}

// step does nothing: jobs come from plans and from requests that time out.
func (j *jobs) step(float64) {}

func (j *jobs) stop() { j.wheel.Stop() }
