package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// BenchmarkContext makes and cancels a context with a timeout while others are live, on the wheel
// and with package context. The parent is the background, a cancellable context that all share, or
// a cancellable context for each ("alone"). "awaited" is the background and "request" a parent for
// each, both with a call to Done. bytes/live is the memory of one live context.
func BenchmarkContext(b *testing.B) {
	tw := newBenchWheel(b, timingwheel.Options{})
	for _, live := range []int{1000, 1_000_000} {
		for _, parent := range []string{"background", "shared", "alone", "awaited", "request"} {
			for name, with := range map[string]func(context.Context, time.Duration) (context.Context, context.CancelFunc){
				"ours": tw.WithTimeout, "std": context.WithTimeout,
			} {
				b.Run(fmt.Sprintf("live=%d/parent=%s/%s", live, parent, name), func(b *testing.B) { benchContext(b, live, parent, with) })
			}
		}
	}
}

func benchContext(b *testing.B, live int, kind string, with func(context.Context, time.Duration) (context.Context, context.CancelFunc)) {
	shared, end := context.WithCancel(context.Background())
	defer end()
	parent := func() context.Context { return shared }
	ask := func(context.Context) {}
	if kind == "awaited" || kind == "request" {
		ask = func(ctx context.Context) { ctx.Done() }
	}
	switch kind {
	case "background", "awaited":
		parent = context.Background
	case "alone", "request": // the cost of the parent counts, as for a request's context
		parent = func() context.Context {
			p, cancel := context.WithCancel(context.Background())
			_ = cancel // the garbage collector takes the parent
			return p
		}
	}
	before := heapInUse()
	cancels := make([]context.CancelFunc, live)
	renew := func(i int) {
		var ctx context.Context
		ctx, cancels[i] = with(parent(), time.Hour+time.Duration(i)*time.Millisecond)
		ask(ctx)
	}
	for i := range cancels {
		renew(i)
	}
	bytes := float64(heapInUse()-before) / float64(live)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		cancels[i]()
		renew(i)
		if i++; i == live {
			i = 0
		}
	}
	b.ReportMetric(bytes, "bytes/live")
	for _, cancel := range cancels {
		cancel()
	}
}
