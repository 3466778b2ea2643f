package timingwheel

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With OnPanic set, a panic costs its callback and nothing else, on every executor.
func TestOnPanicGetsValueAndStack(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			type report struct {
				value any
				stack string
			}
			reports := make(chan report, 100)
			tw := startWheel(t, Options{
				Executor: executor(t), Shards: 1,
				OnPanic: func(value any, stack []byte) { reports <- report{value, string(stack)} },
			})
			var ran atomic.Int32
			at := time.Now().Add(2 * time.Millisecond)
			for i := range 100 {
				if i%2 == 0 {
					tw.AtFunc(at, boom)
				} else {
					tw.AtFunc(at, func() { ran.Add(1) })
				}
			}
			for range 50 {
				r := receive(t, reports, "a report")
				assert.Equal(t, "boom", r.value)
				assert.Contains(t, r.stack, "timingwheel.boom(")
			}
			require.NoError(t, drainWheel(tw))
			assert.EqualValues(t, 50, ran.Load())
			assert.Empty(t, reports)

			tw.AfterFunc(0, func() { panic(nil) }) //nolint:govet // it is the case that is tested
			r := receive(t, reports, "panic(nil)")
			assert.IsType(t, new(runtime.PanicNilError), r.value)
			verifyShards(t, tw.engine)
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// By default a panic crashes the program and shows the callback's stack, as with time.AfterFunc.
func TestPanicCrashesTheProgramByDefault(t *testing.T) {
	roles := map[string]Executor{"default": nil, "Goroutines": Goroutines, "Inline": Inline}
	if role := os.Getenv(childEnv); role != "" {
		tw := startWheel(t, Options{Executor: roles[role]})
		tw.AfterFunc(time.Millisecond, boom)
		time.Sleep(patience)
		return
	}
	t.Parallel()
	for role := range roles {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			output, err := child("TestPanicCrashesTheProgramByDefault", role).CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, 2, exit.ExitCode())
			assert.Contains(t, string(output), "panic: boom")
			assert.Contains(t, string(output), "timingwheel.boom(")
			assert.NotContains(t, string(output), "--- PASS")
		})
	}
}

// runtime.Goexit ends one callback. It is no panic, with or without OnPanic.
func TestGoexitCostsNothingButItsCallback(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		for _, caught := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " with OnPanic"}[caught], func(t *testing.T) {
				t.Parallel()
				opts := Options{Executor: executor(t), Shards: 1}
				if caught {
					opts.OnPanic = func(v any, _ []byte) { t.Errorf("reported: %v", v) }
				}
				tw := startWheel(t, opts)
				var ran atomic.Int32
				for range 3 {
					at := time.Now().Add(2 * time.Millisecond)
					for i := range 100 {
						tw.AtFunc(at, func() {
							ran.Add(1)
							if i%3 == 0 {
								runtime.Goexit()
							}
							ran.Add(1)
						})
					}
					require.NoError(t, drainWheel(tw))
				}
				assert.EqualValues(t, 3*(100+66), ran.Load())
				verifyShards(t, tw.engine)
				require.NoError(t, tw.Shutdown(t.Context()))
			})
		}
	}
}

// Callbacks that all end with Goexit, each arming the next one: every worker dies under the wheel.
func TestGoexitChain(t *testing.T) {
	t.Parallel()
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Executor: executor(t), Shards: 1})
			done := make(chan struct{})
			left := 200
			var step func()
			step = func() {
				if left--; left == 0 {
					close(done)
				} else {
					tw.AfterFunc(0, step)
				}
				runtime.Goexit()
			}
			tw.AfterFunc(0, step)
			receive(t, done, "the end of the chain")
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// In Manual mode a panic, or a Goexit, unwinds to the caller of Advance; what else is due stays
// due.
func TestManualPanicUnwindsToAdvanceAndLosesNothing(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": boom, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tw := startWheel(t, Options{Manual: true, WheelSize: 4, Levels: 2})
			now := tw.Now()
			var order []int
			for i := range 300 { // two to a tick, over more than one level
				tw.AfterFunc(time.Duration(1+i/2)*time.Millisecond, func() {
					order = append(order, i)
					if i%10 == 3 {
						leave()
					}
				})
			}
			now = now.Add(time.Second)
			for calls := 1; tw.Len() > 0; calls++ {
				require.LessOrEqual(t, calls, 31)
				ended := make(chan any)
				go func() {
					defer func() { ended <- recover() }()
					tw.Advance(now)
				}()
				value := receive(t, ended, "Advance")
				if name == "panic" && calls <= 30 {
					assert.Equal(t, "boom", value)
				} else {
					assert.Nil(t, value)
				}
				verifyShards(t, tw.engine)
			}
			for i := range 300 {
				require.Equal(t, i, order[i])
			}
			assert.Zero(t, tw.Stats().Running)
			require.NoError(t, tw.Shutdown(t.Context()))
		})
	}
}

// With OnPanic the same panics are reported, and one Advance runs everything.
func TestManualOnPanicCarriesOn(t *testing.T) {
	t.Parallel()
	reported := 0
	tw := startWheel(t, Options{Manual: true, OnPanic: func(value any, stack []byte) {
		reported++
		assert.Equal(t, "boom", value)
		assert.Contains(t, string(stack), "timingwheel.boom(")
	}})
	for range 10 {
		tw.AfterFunc(time.Millisecond, boom)
	}
	assert.Equal(t, 10, tw.Advance(tw.Now().Add(time.Millisecond)))
	assert.Equal(t, 10, reported)
}

func TestNestedAdvancePanics(t *testing.T) {
	t.Parallel()
	tw := startWheel(t, Options{Manual: true})
	var value any
	ran := false
	tw.AfterFunc(time.Millisecond, func() {
		defer func() { value = recover() }()
		tw.Advance(tw.Now().Add(time.Hour))
	})
	tw.AfterFunc(2*time.Millisecond, func() { ran = true })
	start := tw.Now()
	assert.Equal(t, 1, tw.Advance(start.Add(time.Millisecond)))
	message, _ := value.(string)
	assert.True(t, strings.HasPrefix(message, "timingwheel: Advance while another Advance"), message)
	assert.Equal(t, start.Add(time.Millisecond), tw.Now(), "the nested call moved the clock")
	assert.False(t, ran)
	assert.Equal(t, 1, tw.Advance(start.Add(2*time.Millisecond)), "Advance works on")
	assert.True(t, ran)
}
