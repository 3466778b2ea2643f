package main

import (
	"math/rand/v2"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/timingwheel-go/timingwheel"
)

const (
	backoff  = 500 * time.Millisecond // doubled with each attempt
	attempts = 8
	failing  = 0.6 // of the attempts
)

// jobs are attempts that back off, and plans.
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

// retry plans an attempt, which may fail and is then followed by another, until there were enough.
func (j *jobs) retry(attempt int) {
	delay := backoff << attempt
	j.wheel.AfterFunc(delay/2+rand.N(delay), func() {
		if attempt < attempts && rand.Float64() < failing {
			j.retry(attempt + 1)
		}
	})
}

// step has nothing to do: jobs come from requests that have timed out, and from plans.
func (j *jobs) step(float64) {}

func (j *jobs) stop() { j.wheel.Stop() }
