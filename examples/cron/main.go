// Cron runs plans written as cron expressions. The wheel knows nothing of cron: a plan is anything with a
// method Next(time.Time) time.Time, and so is each Schedule of github.com/robfig/cron/v3.
//
// Fifteen days pass in no time here, as the wheel is driven by hand; without Manual the same plans would run at
// their hours.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/timingwheel-go/timingwheel"
)

func main() {
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	if err := run(os.Stdout, start, start.AddDate(0, 0, 15)); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, start, end time.Time) error {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Tick: time.Second})
	if err != nil {
		return err
	}
	defer tw.Stop()
	for _, plan := range []struct{ what, when string }{
		{"backup", "30 2 * * SUN"},    // 02:30 on Sundays
		{"report", "0 9 * * MON-FRI"}, // 09:00 on working days
		{"invoice", "0 0 1,15 * *"},   // the first and the 15th
		{"cleanup", "@every 100h"},    // from the start
	} {
		schedule, err := cron.ParseStandard(plan.when)
		if err != nil {
			return err
		}
		tw.ScheduleFunc(schedule, func() { fmt.Fprintf(w, "%s  %s\n", tw.Now().Format("Mon 2006-01-02 15:04"), plan.what) })
	}
	for next, ok := tw.Next(); ok && next.Before(end); next, ok = tw.Next() {
		tw.Advance(next)
	}
	return nil
}
