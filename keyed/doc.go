// Package keyed maintains one timeout per key: sessions by ID, connections by address, cache
// entries, locks and leases by name.
//
//	sessions, err := keyed.NewMap(timingwheel.Options{}, 20*time.Minute,
//		func(id string, s *Session) { s.Close() })
//	if err != nil {
//		return err
//	}
//	sessions.Store("a7", session)  // expires in 20 minutes
//	sessions.Touch("a7")           // true: it expires 20 minutes from now
//	s, ok := sessions.Load("a7")   // does not extend its time to live
//	sessions.Delete("a7")          // true: it will never be reported
//
// [Map] stores a value per key and gives it a time to live. [Keys] stores no values and takes a
// timeout with each call. [Heartbeats] is Keys with the same timeout for all keys. All three are
// built on [timingwheel.Timeouts] and keep its guarantees: deadlines are rounded up to a tick, no
// key expires early, and no goroutine runs while nothing is due.
//
// # When not to use it
//
// If the program already has an object per key, put a [timingwheel.FuncTimer] in that object: the
// timer does the same without the map. If entries must be evicted because there are too many of
// them, use a cache library: this package does not limit the number of keys.
//
// # Guarantees
//
// A key is present from the call to Set or Store that adds it until it is deleted or expires. Calls
// with the same key are linearizable: they behave as if they happened one after the other.
//
//   - A key that Set has added leaves the set in exactly one way: it is reported to the expire
//     function once, one call to Delete returns true, or the set is stopped. Exactly one thing
//     happens to a value stored in a Map: it is reported once, deleted, replaced, or discarded by
//     Stop.
//   - A key is removed before the expire function sees it. The function may set the key again.
//   - If Delete returns true, it has prevented the report. If it returns false, it found no such
//     key or came too late.
//   - No lock is held while the expire function runs. The function may call any method in this
//     package, including Stop.
//
// Map and Keys differ in when a key counts as expired. In a Map the clock decides: once the
// deadline, rounded up to a tick, has passed, no call finds the entry, however late the wheel is.
// In Keys and Heartbeats the wheel decides: a call to Set, Touch or Beat after the deadline, but
// before the wheel has removed the key, is still in time, and the key is not reported.
//
// # Cost
//
// For a present key, Beat and the Set and Touch methods of Keys each make one lock-free lookup and
// one [timingwheel.Timer.Reschedule]. Load makes one lock-free lookup and reads the clock once or
// twice. The Touch method of a Map takes the lock of the key's bucket, which the key shares with a
// few others. None of these calls normally allocates, and neither does expiry. A new key, and each
// Store, takes one allocation in the map. If K contains no pointers, the garbage collector does not
// scan the wheel. In the map it follows two pointers per key, and the pointers in K and V.
//
// # Keys
//
// Keys are compared with ==, as in a Go map. A key that is not equal to itself, such as a NaN or a
// struct that contains one, could never be found again: Set and Store panic, and all other calls
// find nothing. If K is an interface type, every call with a key whose dynamic type is not
// comparable panics, as a Go map does. Adding a key panics if a shard of the wheel already has 2^29
// keys. The program must not continue then, because the key's bucket stays locked.
//
// # Testing
//
// In Manual mode the test moves the clock with Advance, and the expire function runs inside that
// call. In a [testing/synctest] bubble everything works unchanged, provided that the set is made
// and stopped inside the bubble.
package keyed
