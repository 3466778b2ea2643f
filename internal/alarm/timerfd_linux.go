package alarm

import (
	"os"
	"sync"
	"sync/atomic" // its 64-bit types are aligned on 32-bit platforms
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/timingwheel-go/timingwheel/internal/clock"
)

const (
	// near is how far ahead an alarm for the descriptor may be.
	near = 100 * time.Millisecond

	// lead is how long before its time a distant alarm rings. The runtime's timer may be late.
	lead = 10 * time.Millisecond

	// linger is how long the descriptor stays open after the last of a stream of near alarms.
	linger = near

	// behind is how long after a near alarm the runtime's timer goes off. Usually the alarm has
	// been set to another time by then.
	behind = time.Millisecond
)

// Group is the alarms of one wheel, which share a timer descriptor. The descriptor is open, and a
// goroutine waits for it, while an alarm is near. Opening and closing the descriptor costs half as
// much as a wake-up, so it stays open for a while after two alarms in close succession. Turning an
// alarm off does not change the descriptor, which then goes off for nothing.
//
// If a processor is idle, the runtime notices the descriptor immediately. Otherwise the runtime
// looks every 10 ms, and the goroutine then waits its turn behind all others. On a busy machine a
// timer of the runtime is more punctual, so a near alarm sets both.
type Group struct {
	read   func() int64
	alarms []*Alarm
	fake   bool // in a bubble, whose clock would stop while a goroutine waits for a descriptor

	next    atomic.Int64 // when the descriptor goes off, or none; an earlier alarm calls update
	changed atomic.Bool  // an alarm was set to an earlier time; see update

	mu    sync.Mutex
	file  *os.File // nil: closed. The goroutine that waits for it closes it
	fd    int
	rang  int64 // when an alarm rang last
	close int64 // the descriptor stays open until this time
}

// NewGroup takes a function that reads the clock, in nanoseconds.
func NewGroup(read func() int64) *Group {
	g := &Group{read: read, fake: !clock.IsMonotonic(time.Now()), rang: -int64(linger)}
	g.next.Store(none)
	return g
}

func (g *Group) add(a *Alarm) { g.alarms = append(g.alarms, a) }

// set sets the descriptor for an alarm that is near. It returns the delay for the runtime's timer.
func (g *Group) set(a *Alarm, at, now int64) time.Duration {
	d := time.Duration(at - now)
	switch {
	case g.fake:
		return d
	case d > near:
		a.near.Store(none)
		return d - lead
	}
	a.near.Store(at)
	if at < g.next.Load() {
		g.update()
	}
	if g.next.Load() == none {
		return d // there is no descriptor
	}
	return d + behind
}

// update sets the descriptor for the first alarm. If another goroutine holds mu, that goroutine
// does it, so that the owner of an alarm never waits for a goroutine that was preempted.
func (g *Group) update() {
	g.changed.Store(true)
	for g.changed.Load() && g.mu.TryLock() {
		g.changed.Store(false)
		if first := g.first(); first < g.next.Load() {
			g.setTo(first)
		}
		g.mu.Unlock()
	}
}

func (g *Group) first() int64 {
	first := int64(none)
	for _, a := range g.alarms {
		first = min(first, a.near.Load())
	}
	return first
}

// setTo sets the descriptor, if it can be opened. mu is held.
func (g *Group) setTo(at int64) {
	if g.file == nil && !g.open() {
		return
	}
	g.next.Store(at)
	in := unix.NsecToTimespec(max(1, at-g.read()))
	// It fails only for a bad argument.
	_ = unix.TimerfdSettime(g.fd, 0, &unix.ItimerSpec{Value: in}, nil)
}

// mu is held.
func (g *Group) open() bool {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	conn, err := file.SyscallConn()
	if err != nil || file.SetReadDeadline(time.Time{}) != nil { // the poller has not taken it
		_ = file.Close()
		return false
	}
	g.file, g.fd = file, fd
	go g.wait(file, conn)
	return true
}

// wait waits for the descriptor until it is closed. It does not read the descriptor, because a
// system call that may block wakes the runtime's monitor thread.
func (g *Group) wait(file *os.File, conn syscall.RawConn) {
	waited := false
	wentOff := func(uintptr) bool { // is called before and after the wait
		past := waited || g.read() >= g.next.Load()
		waited = true
		return past
	}
	for open := true; open; {
		waited = false
		err := conn.Read(wentOff)
		g.mu.Lock()
		if err == nil {
			g.goOff()
		} else { // the wait was ended
			g.closeFile()
		}
		open = g.file == file
		g.mu.Unlock()
		g.update()
	}
}

// goOff lets alarms ring, and then sets the descriptor again or closes it. mu is held.
func (g *Group) goOff() {
	now, last := g.read(), g.rang
	g.next.Store(none) // from now on an alarm that is set calls update
	for _, a := range g.alarms {
		if at := a.near.Load(); at <= now && a.near.CompareAndSwap(at, none) {
			if g.rang = now; now-last < int64(linger) {
				g.close = now + int64(linger)
			}
			go a.ring()
		}
	}
	at := g.first()
	if g.close > now {
		at = min(at, g.close)
	}
	if at == none {
		g.closeFile()
		return
	}
	g.setTo(at)
}

// mu is held.
func (g *Group) closeFile() {
	g.next.Store(none)
	_ = g.file.Close()
	g.file = nil
}

// closeIfUnused ends the wait for the descriptor if no alarm is near.
func (g *Group) closeIfUnused() {
	g.mu.Lock()
	if g.file != nil && g.first() == none {
		_ = g.file.SetReadDeadline(time.Unix(1, 0)) // long ago
	}
	g.mu.Unlock()
	g.update()
}
