package bench_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// eachChannels runs a benchmark for package time and for a wheel, each with pending callbacks.
func eachChannels(b *testing.B, std func(b *testing.B), wheel func(b *testing.B, tw *timingwheel.TimingWheel)) {
	b.Helper()
	for _, size := range sizes {
		if size.n != 1_000 && size.n != 1_000_000 {
			continue
		}
		b.Run("impl=std/pending="+size.name, func(b *testing.B) {
			fillStd(b, size.n)
			startMeasuring(b)
			std(b)
		})
		b.Run("impl=wheel/pending="+size.name, func(b *testing.B) {
			tw := newBenchWheel(b, timingwheel.Options{})
			fillWheel(tw, size.n)
			startMeasuring(b)
			wheel(b, tw)
		})
	}
}

// BenchmarkNewTimerStop stops a timer on which no goroutine has waited. Package time adds a timer
// to its heap only when a goroutine waits.
func BenchmarkNewTimerStop(b *testing.B) {
	eachChannels(b, func(b *testing.B) {
		for b.Loop() {
			time.NewTimer(30 * time.Second).Stop()
		}
	}, func(b *testing.B, tw *timingwheel.TimingWheel) {
		for b.Loop() {
			tw.NewChannelTimer(30 * time.Second).Stop()
		}
	})
}

// BenchmarkNewTimerWait measures a timeout of an answer that comes in time: a goroutine waits for
// the answer and the timer, and then stops the timer.
func BenchmarkNewTimerWait(b *testing.B) {
	eachChannels(b, func(b *testing.B) {
		answers(b, func(answer <-chan int) {
			t := time.NewTimer(30 * time.Second)
			select {
			case <-answer:
			case <-t.C:
			}
			t.Stop()
		})
	}, func(b *testing.B, tw *timingwheel.TimingWheel) {
		answers(b, func(answer <-chan int) {
			t := tw.NewChannelTimer(30 * time.Second)
			select {
			case <-answer:
			case <-t.C:
			}
			t.Stop()
		})
	})
}

// answers asks another goroutine b.N questions and calls wait for each answer.
func answers(b *testing.B, wait func(answer <-chan int)) {
	question, answer := make(chan int), make(chan int)
	go func() {
		for q := range question {
			answer <- q
		}
	}()
	for i := range b.N {
		question <- i
		wait(answer)
	}
	close(question)
}

// BenchmarkTimerReset measures Reset on a timer with a channel, to a later time.
func BenchmarkTimerReset(b *testing.B) {
	eachChannels(b, func(b *testing.B) {
		t := time.NewTimer(time.Hour)
		for b.Loop() {
			t.Reset(time.Hour)
		}
	}, func(b *testing.B, tw *timingwheel.TimingWheel) {
		t := tw.NewChannelTimer(time.Hour)
		for b.Loop() {
			t.Reset(time.Hour)
		}
	})
}

// BenchmarkAfter makes channels and receives their values about a millisecond later. 20,000
// channels are in use at a time.
func BenchmarkAfter(b *testing.B) {
	eachChannels(b, func(b *testing.B) { receiveAll(b, time.After) },
		func(b *testing.B, tw *timingwheel.TimingWheel) { receiveAll(b, tw.After) })
}

func receiveAll(b *testing.B, after func(time.Duration) <-chan time.Time) {
	under := make([]<-chan time.Time, 20_000)
	for i := range b.N {
		at := i % len(under)
		if under[at] != nil {
			<-under[at]
		}
		under[at] = after(time.Millisecond)
	}
}

// BenchmarkSleep measures the time for one Sleep while 20,000 goroutines repeatedly sleep for a
// millisecond.
func BenchmarkSleep(b *testing.B) {
	eachChannels(b, func(b *testing.B) { sleepers(b, func() { time.Sleep(time.Millisecond) }) },
		func(b *testing.B, tw *timingwheel.TimingWheel) {
			sleepers(b, func() { _ = tw.Sleep(context.Background(), time.Millisecond) })
		})
}

// BenchmarkSleepContext is BenchmarkSleep with a context that can end. Package time has no such
// Sleep, so a timer and a select replace it.
func BenchmarkSleepContext(b *testing.B) {
	ctx := b.Context()
	eachChannels(b, func(b *testing.B) {
		sleepers(b, func() {
			t := time.NewTimer(time.Millisecond)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
		})
	}, func(b *testing.B, tw *timingwheel.TimingWheel) {
		sleepers(b, func() { _ = tw.Sleep(ctx, time.Millisecond) })
	})
}

func sleepers(b *testing.B, sleep func()) {
	const n = 20_000
	var all sync.WaitGroup
	for i := range min(n, b.N) {
		all.Go(func() {
			for range (b.N - i + n - 1) / n {
				sleep()
			}
		})
	}
	all.Wait()
}

// BenchmarkTicks runs 1,000 goroutines that wait for tickers of 5 ms. cpu-ns/tick is the processor
// time for each tick.
func BenchmarkTicks(b *testing.B) {
	eachChannels(b, func(b *testing.B) {
		ticks(b, func() (<-chan time.Time, func()) {
			t := time.NewTicker(5 * time.Millisecond)
			return t.C, t.Stop
		})
	}, func(b *testing.B, tw *timingwheel.TimingWheel) {
		ticks(b, func() (<-chan time.Time, func()) {
			t := tw.NewTicker(5 * time.Millisecond)
			return t.C, t.Stop
		})
	})
}

func ticks(b *testing.B, start func() (<-chan time.Time, func())) {
	const n = 1_000
	before := processorTime()
	var all sync.WaitGroup
	for i := range min(n, b.N) {
		all.Go(func() {
			c, stop := start()
			defer stop()
			for range (b.N - i + n - 1) / n {
				<-c
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/tick")
}
