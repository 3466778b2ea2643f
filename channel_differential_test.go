package timingwheel

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// poll receives what is there, or nothing.
func poll(c <-chan time.Time) (v time.Time) {
	select {
	case v = <-c:
	default:
	}
	return v
}

// The same calls of a timer and a ticker of package time and of ours, at moments at which their
// precision does not tell them apart, have the same results.
func TestChannelsDoWhatPackageTimeDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		opts := channelShapes[seed%4]
		opts.Tick = ms
		bubble(t, opts, func(t *testing.T, tw *TimingWheel) {
			random := rand.New(rand.NewPCG(seed, 0))
			their, our := time.NewTimer(10*ms), tw.NewTimer(10*ms)
			theirTicker, ourTicker := time.NewTicker(7*ms), tw.NewTicker(7*ms)
			for step := range 300 {
				d := time.Duration(random.IntN(20)) * ms
				at := []any{"seed %d, step %d", seed, step}
				switch random.IntN(9) {
				case 0:
					require.Equal(t, their.Stop(), our.Stop(), at...)
				case 1, 2:
					require.Equal(t, their.Reset(d), our.Reset(d), at...)
				case 3:
					theirTicker.Stop()
					ourTicker.Stop()
				case 4:
					theirTicker.Reset(d + ms)
					ourTicker.Reset(d + ms)
				default:
					time.Sleep(d)
				}
				synctest.Wait()
				if random.IntN(2) == 0 {
					require.Equal(t, poll(their.C), poll(our.C), at...)
				}
				if random.IntN(2) == 0 {
					require.Equal(t, poll(theirTicker.C), poll(ourTicker.C), at...)
				}
			}
			theirTicker.Stop()
			ourTicker.Stop()
		})
	}
}
