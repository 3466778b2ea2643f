package alarm

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inspect calls f with the state of a group locked.
func (g *Group) inspect(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func (g *Group) isOpen() (open bool) {
	g.inspect(func() { open = g.file != nil })
	return open
}

func requireSoonClosed(t *testing.T, g *Group) {
	t.Helper()
	require.Eventually(t, func() bool { return !g.isOpen() }, hangTimeout, ms)
}

// disarm makes the descriptor not go off.
func (g *Group) disarm(t *testing.T) {
	g.inspect(func() { require.NoError(t, unix.TimerfdSettime(g.fd, 0, new(unix.ItimerSpec), nil)) })
}

func TestDescriptorIsOpenOnlyWhileAnAlarmIsNear(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 3, read)
	require.False(t, g.isOpen())
	owners[0].set(near + 10*time.Second)
	require.False(t, g.isOpen())
	owners[1].set(near)
	owners[2].set(near / 2)
	require.True(t, g.isOpen())
	owners[2].off()
	owners[1].await(t)
	requireSoonClosed(t, g)
}

// A distant alarm opens the descriptor when it has come near.
func TestDescriptorIsSetForADistantAlarm(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 1, read)
	require.Eventually(t, func() bool { // the runtime's timer may be late by more than lead
		owners[0].set(near + lead)
		time.Sleep(near + ms)
		opened := g.isOpen()
		owners[0].await(t)
		return opened
	}, hangTimeout, ms)
	requireSoonClosed(t, g)
}

// A stream of near alarms does not open and close the descriptor each time.
// The descriptor is closed after the stream, although no alarm is set.
func TestDescriptorStaysOpenInAStream(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 1, read)
	o := owners[0]
	ring := func() {
		o.set(ms)
		o.await(t)
	}
	var before, after *os.File
	require.Eventually(t, func() bool { // this goroutine may be preempted for longer than linger
		ring()
		ring()
		g.inspect(func() { before = g.file })
		ring()
		g.inspect(func() { after = g.file })
		return before != nil && before == after
	}, hangTimeout, ms)
	requireSoonClosed(t, g)
}

// Once all alarms are closed, the descriptor is closed immediately.
func TestClosedAlarmsCloseTheDescriptor(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 2, read)
	for _, o := range owners {
		o.set(near)
	}
	g.disarm(t)
	owners[0].close()
	require.True(t, g.isOpen())
	owners[1].close()
	requireSoonClosed(t, g)
}

// An alarm that is set while another goroutine closes the descriptor opens it again.
func TestAlarmRingsAlthoughTheDescriptorIsClosed(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 2, read)
	owners[0].set(near)
	for range 100 {
		g.closeIfUnused()
		owners[0].off()
		g.closeIfUnused()
		owners[0].set(2 * ms)
		owners[0].await(t)
	}
}

func TestDescriptorIsClosedOnExec(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 1, read)
	for open := false; !open; {
		owners[0].set(near)
		g.inspect(func() {
			if open = g.file != nil; !open {
				return
			}
			link, err := os.Readlink(fmt.Sprint("/proc/self/fd/", g.fd))
			require.NoError(t, err)
			require.Contains(t, link, "timerfd")
			listed, err := exec.Command("ls", "-l", "/proc/self/fd").Output() // the child's descriptors
			require.NoError(t, err)
			require.Contains(t, string(listed), "/dev/null")
			require.NotContains(t, string(listed), "timerfd")
		})
	}
}

// The runtime's timer rings if the descriptor does not.
func TestRuntimeTimerRingsIfDescriptorDoesNot(t *testing.T) {
	t.Parallel()
	g, owners := newOwners(t, 1, read)
	o := owners[0]
	for range 3 {
		o.set(near)
		g.disarm(t)
		o.await(t)
	}
}

// A process without a free descriptor uses the runtime's timers.
func TestAlarmsRingWithoutDescriptors(t *testing.T) {
	const child = "ALARM_TEST_WITHOUT_DESCRIPTORS"
	if os.Getenv(child) == "" {
		t.Parallel()
		command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), child+"=1")
		output, err := command.CombinedOutput()
		assert.NoError(t, err, string(output))
		return
	}
	g, owners := newOwners(t, 2, read)
	owners[0].set(time.Hour) // the runtime opens the descriptors of its poller for its first timer
	owners[0].off()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	lowered := limit
	lowered.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered))
	for range 10 {
		for _, o := range owners {
			o.set(5 * ms)
			require.False(t, g.isOpen())
		}
		for _, o := range owners {
			o.await(t)
		}
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.Eventually(t, func() bool {
		owners[0].set(5 * ms)
		open := g.isOpen()
		owners[0].await(t)
		return open
	}, hangTimeout, ms)
}

func TestFakeTimeIsRecognised(t *testing.T) {
	t.Parallel()
	require.False(t, NewGroup(read).fake)
	synctest.Test(t, func(t *testing.T) {
		require.True(t, NewGroup(read).fake)
		time.Sleep(10 * 365 * 24 * time.Hour)
		require.True(t, NewGroup(read).fake)
		g, owners := newOwners(t, 1, read)
		owners[0].set(ms)
		require.False(t, g.isOpen())
	})
}
