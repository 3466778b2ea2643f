//go:build invariants

package timingwheel

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"unsafe"
)

func init() { underInvariants = true }

// Unlock verifies the shard to which the mutex belongs, and exits the program if an invariant is
// violated. A verification is O(records). With many open pages only some unlocks verify, at random,
// so that the cost of a change stays within a small factor.
func (m *ownerMutex) Unlock() {
	defer m.Mutex.Unlock()
	s := (*shard)(unsafe.Add(unsafe.Pointer(m), -int(unsafe.Offsetof(shard{}.owner)+unsafe.Offsetof(owner{}.mu))))
	if s.closed.Load() {
		return
	}
	s.inbox.mu.Lock()
	pages := s.inbox.records.OpenPages
	s.inbox.mu.Unlock()
	if rand.IntN(max(1, 2*pages)) > 0 {
		return
	}
	if err := s.verify(); err != nil {
		// A panic would run deferred calls that lock owner.mu, which is held. They would hang
		// before the message is printed.
		println("timingwheel: invariant " + err.Error())
		debug.PrintStack()
		os.Exit(2)
	}
}
