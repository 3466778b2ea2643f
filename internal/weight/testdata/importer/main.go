// Command importer calls the functions and methods of the API that could make the compiler
// instantiate the engine.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

func main() {
	ctx := context.Background()
	f := func() {}
	tw, err := timingwheel.New(timingwheel.Options{Executor: timingwheel.Limit(1)})
	fmt.Println(tw, err, tw.String(), tw.Len(), tw.Stats(), tw.Now(), tw.Flush(), tw.Advance(time.Now()))
	fmt.Println(tw.Next())
	t := tw.AfterFunc(time.Second, f)
	t = tw.AtFunc(time.Now(), f)
	t = tw.ScheduleFunc(timingwheel.Every(time.Second), f)
	t = tw.ScheduleRun(timingwheel.Every(time.Second), func(r *timingwheel.Run) { r.Stop() })
	fmt.Println(t.Stop(), t.Reschedule(0), t.RescheduleAt(time.Now()))
	fmt.Println(t.Deadline())
	ft := tw.NewFuncTimer(time.Second, f)
	ft.Init(tw, time.Second, f)
	ft.InitStopped(tw, f)
	fmt.Println(ft.Reset(0), ft.Stop(), ft.Touch(), ft.TouchFrom(time.Now()), ft.StopWait(ctx))
	fmt.Println(ft.Deadline())
	c := tw.NewChannelTimer(time.Second)
	fmt.Println(c.Stop(), c.Reset(0), tw.After(0), tw.Sleep(ctx, 0))
	k := tw.NewTicker(time.Second)
	k.Reset(time.Second)
	k.Stop()
	for range tw.Ticks(time.Second) {
	}
	_, cancel := tw.WithTimeout(ctx, 0)
	_, cancel2 := tw.WithDeadline(ctx, time.Now())
	_, cancel3 := tw.WithTimeoutCause(ctx, 0, err)
	_, cancel4 := tw.WithDeadlineCause(ctx, time.Now(), err)
	fmt.Println(cancel, cancel2, cancel3, cancel4, tw.WriteProfile(io.Discard), tw.Shutdown(ctx))
	tw.Stop()
	timingwheel.SetDefault(tw)
	timingwheel.AfterFunc(0, f)
	timingwheel.AtFunc(time.Now(), f)
	timingwheel.ScheduleFunc(timingwheel.Every(1), f)
	fmt.Println(timingwheel.After(0), timingwheel.NewChannelTimer(0), timingwheel.NewTicker(1), timingwheel.Sleep(ctx, 0), timingwheel.Default())
}
