// Cron runs plans from cron expressions. The wheel has no cron parser: a plan is any type with a
// method Next(time.Time) time.Time, such as a Schedule of github.com/robfig/cron/v3.
//
// The program runs fifteen days in virtual time, because the wheel is in Manual mode. Without
// Manual the same plans run at their real times.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"
	_ "time/tzdata" // for CRON_TZ on machines without a time zone database

	"github.com/robfig/cron/v3"
	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/schedule"
)

func main() {
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	if err := run(os.Stdout, start, start.AddDate(0, 0, 15)); err != nil {
		log.Fatal(err)
	}
}

const layout = "Mon 2006-01-02 15:04"

func run(w io.Writer, start, end time.Time) error {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Tick: time.Second})
	if err != nil {
		return err
	}
	defer tw.Stop()
	for _, task := range []struct{ what, when string }{
		{"backup", "30 2 * * SUN"},    // 02:30 on Sundays
		{"report", "0 9 * * MON-FRI"}, // 09:00 on working days
		{"invoice", "0 0 1,15 * *"},   // on the 1st and the 15th
		{"cleanup", "@every 100h"},    // from the start

		// 09:30 on working days in New York. Daylight saving time begins there on March 10, so the
		// runs are an hour earlier in UTC from then on.
		{"opening", "CRON_TZ=America/New_York 30 9 * * MON-FRI"},
	} {
		cronSchedule, err := cron.ParseStandard(task.when)
		if err != nil {
			return err
		}
		tw.ScheduleFunc(cronSchedule, func() { fmt.Fprintf(w, "%s  %s\n", tw.Now().Format(layout), task.what) })
	}

	// Package schedule can wrap any schedule: three reminders and no more.
	mornings, err := cron.ParseStandard("0 8 * * *")
	if err != nil {
		return err
	}
	tw.ScheduleRun(schedule.Limit(mornings, 3), func(r *timingwheel.Run) {
		fmt.Fprintf(w, "%s  reminder %d\n", r.Planned.Format(layout), r.N)
	})
	for next, ok := tw.Next(); ok && next.Before(end); next, ok = tw.Next() {
		tw.Advance(next)
	}
	return nil
}
