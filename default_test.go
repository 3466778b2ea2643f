package timingwheel

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The default wheel can be set once in a process, and other tests use it. So the cases run in a
// second process of the test binary, with this variable set. Before each case the default is unset.
const inSecondProcess = "TIMINGWHEEL_SECOND_PROCESS"

const lateSetDefault = "timingwheel: SetDefault after Default was used or set: call it once, at the start of main, " +
	"before any use of Default and of package-level functions"

var defaultCases = map[string]func(*testing.T){
	"set":                 setDefaultIsUsed,
	"bad wheels":          setDefaultRefusesBadWheels,
	"race of sets":        setDefaultHasOneWinner,
	"race with first use": setDefaultRacesWithFirstUse,
	"race with Stop":      setDefaultRacesWithStop,
}

// firstUses are calls that make the default wheel if there is none.
var firstUses = map[string]func(){
	"Default":         func() { Default() },
	"AfterFunc":       func() { AfterFunc(time.Hour, func() {}) },
	"AtFunc":          func() { AtFunc(time.Now(), func() {}) },
	"ScheduleFunc":    func() { ScheduleFunc(Every(time.Hour), func() {}) },
	"After":           func() { After(time.Hour) },
	"NewChannelTimer": func() { NewChannelTimer(time.Hour) },
	"NewTicker":       func() { NewTicker(time.Hour) },
	"Sleep":           func() { _ = Sleep(context.Background(), 1) },
}

func TestSetDefault(t *testing.T) {
	t.Parallel()
	if os.Getenv(inSecondProcess) == "" {
		binary, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestSetDefault$", "-test.v")
		cmd.Env = append(os.Environ(), inSecondProcess+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestSetDefault/race_with_Stop")
		return
	}
	for name, use := range firstUses {
		withoutDefault(t, "after "+name, func(t *testing.T) {
			use()
			made, tw := Default(), startWheel(t, Options{})
			require.PanicsWithValue(t, lateSetDefault, func() { SetDefault(tw) })
			require.PanicsWithValue(t, lateSetDefault, func() { SetDefault(made) })
			require.True(t, made == Default())
			require.NotPanics(t, tw.Stop, "a wheel that SetDefault has refused stays private")
		})
	}
	for name, run := range defaultCases {
		withoutDefault(t, name, run)
	}
}

// withoutDefault unsets the default wheel and runs a case.
func withoutDefault(t *testing.T, name string, run func(*testing.T)) {
	t.Helper()
	defaultWheel.Store(nil)
	t.Run(name, run)
}

func setDefaultIsUsed(t *testing.T) {
	tw, err := New(Options{Tick: 5 * ms, Name: "default"})
	require.NoError(t, err)
	before := tw.AfterFunc(time.Hour, func() {})
	SetDefault(tw)
	require.True(t, tw == Default())
	require.True(t, AfterFunc(time.Hour, func() {}).Stop())
	for name, use := range firstUses {
		armed := tw.Stats().Armed
		if use(); name == "Default" {
			continue
		}
		require.Equal(t, armed+1, tw.Stats().Armed, "%s must use the wheel", name)
	}
	require.Contains(t, receive(t, After(ms), "After").String(), " m=", "the value has no monotonic reading")
	for method, call := range map[string]func(){
		"Stop":     tw.Stop,
		"Shutdown": func() { _ = tw.Shutdown(t.Context()) },
		"Flush":    func() { tw.Flush() },
	} {
		assert.PanicsWithValue(t, "timingwheel: "+method+" of the default wheel, which the whole process shares", call)
	}
	require.Panics(t, func() { SetDefault(tw) }, "a second call with the same wheel")
	require.True(t, before.Stop(), "SetDefault has lost a pending timer")
	require.NoError(t, Sleep(t.Context(), ms))
}

func setDefaultRefusesBadWheels(t *testing.T) {
	stopped, shut := startWheel(t, Options{}), startWheel(t, Options{})
	stopped.Stop()
	require.NoError(t, shut.Shutdown(t.Context()))
	for message, wheels := range map[string][]*TimingWheel{
		"timingwheel: SetDefault with a nil wheel; it must be running":       {nil},
		"timingwheel: SetDefault with a Manual wheel; it must run by itself": {startWheel(t, Options{Manual: true})},
		"timingwheel: SetDefault with a stopped wheel; it must be running":   {stopped, shut},
	} {
		for _, tw := range wheels {
			require.PanicsWithValue(t, message, func() { SetDefault(tw) })
		}
	}
	tw, err := New(Options{})
	require.NoError(t, err)
	var none context.Context
	require.Panics(t, func() { _ = tw.Shutdown(none) })
	SetDefault(tw)
	require.True(t, tw == Default(), "a refused wheel or a panicking Shutdown prevents SetDefault")
}

// rounds runs f many times, each time without a default wheel. race runs its arguments
// concurrently.
func rounds(f func(round int, race func(...func()))) {
	for round := range 200 {
		defaultWheel.Store(nil)
		f(round, func(calls ...func()) {
			var all sync.WaitGroup
			begin := make(chan struct{})
			for _, call := range calls {
				all.Go(func() {
					<-begin
					call()
				})
			}
			close(begin)
			all.Wait()
		})
	}
}

// panics reports whether f panics.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return
}

func setDefaultHasOneWinner(t *testing.T) {
	rounds(func(_ int, race func(...func())) {
		wheels, won := make([]*TimingWheel, 8), make([]bool, 8)
		calls := make([]func(), len(wheels))
		for i := range wheels {
			wheels[i], _ = New(Options{Shards: 1})
			calls[i] = func() { won[i] = !panics(func() { SetDefault(wheels[i]) }) }
		}
		race(calls...)
		winners := 0
		for i, tw := range wheels {
			if won[i] {
				winners++
				require.True(t, tw == Default())
			}
			require.Equal(t, won[i], panics(tw.Stop))
		}
		require.Equal(t, 1, winners)
	})
}

func setDefaultRacesWithFirstUse(t *testing.T) {
	rounds(func(_ int, race func(...func())) {
		tw, err := New(Options{Shards: 1})
		require.NoError(t, err)
		seen := make([]*TimingWheel, 4)
		set := false
		calls := []func(){func() { set = !panics(func() { SetDefault(tw) }) }}
		for i := range seen {
			calls = append(calls, func() { seen[i] = Default() })
		}
		race(calls...)
		for _, s := range seen {
			require.True(t, s == Default(), "there are two default wheels")
		}
		require.Equal(t, set, Default() == tw)
		require.Equal(t, set, panics(tw.Stop))
	})
}

// The wheel is either stopped or the default, and never both.
func setDefaultRacesWithStop(t *testing.T) {
	rounds(func(round int, race func(...func())) {
		tw, err := New(Options{Shards: 1})
		require.NoError(t, err)
		set, stopped := false, false
		end := tw.Stop
		if round%2 == 0 {
			end = func() { _ = tw.Shutdown(context.Background()) }
		}
		race(func() { set = !panics(func() { SetDefault(tw) }) }, func() { stopped = !panics(end) })
		require.NotEqual(t, set, stopped)
		require.Equal(t, set, tw.AfterFunc(time.Hour, func() {}) != Timer{})
	})
}
