// Package keyed keeps one timeout for each key: sessions by id, connections by address, cache
// entries, locks and leases by name.
//
//	sessions, err := keyed.NewMap(timingwheel.Options{}, 20*time.Minute,
//		func(id string, s *Session) { s.Close() })
//	if err != nil {
//		return err
//	}
//	sessions.Store("a7", session)  // expires in 20 minutes
//	sessions.Touch("a7")           // true: it has 20 minutes again
//	s, ok := sessions.Load("a7")   // does not extend its time
//	sessions.Delete("a7")          // true: it will never be reported
//
// [Map] has a value for each key, and a time to live. [Keys] has no values and takes a timeout with
// each call. [Heartbeats] is Keys with one timeout for all of them. They stand on
// [timingwheel.Timeouts], whose guarantees they keep: never early, at most a tick late, no
// goroutine while nothing is due.
//
// # When not to use it
//
// If the program has an object for each key anyway, a [timingwheel.FuncTimer] in that object does
// the same without the map. If the least used entries have to be evicted when there are too many,
// a cache library is the better choice: nothing here limits the number of keys.
//
// # Guarantees
//
// A key is present from the Set or Store that adds it until a Delete or an expiry takes it out. For
// each key the calls behave as if they happened one after the other.
//
//   - Each Set that returned true has exactly one end: the key is reported to the expire function
//     once, or one Delete returned true, or the set was stopped. Each value that was stored in a
//     Map has exactly one end: it is reported once, deleted, replaced, or discarded by Stop.
//   - A key has been taken out when the expire function sees it. The function may set it again.
//   - A Delete that returned false came too late, or there was no such key. A Delete that returned
//     true prevented the report.
//   - No lock is held while the expire function runs. It may call everything here, Stop included.
//
// Map and Keys differ in the moment at which the time of a key is up. In a Map the clock decides:
// from the deadline on, rounded up to a tick, no call finds the entry, however late the wheel is.
// In Keys and Heartbeats the wheel decides: a Set, Touch or Beat that comes when the time is up,
// and before the key has been taken out, is in time, and the key is not reported.
//
// # Cost
//
// Touch and Set of a present key, and Beat, are one lookup without a lock and one
// [timingwheel.Timer.Reschedule]. Load is one lookup without a lock and one reading of the clock.
// Touch of a Map takes the lock of the key's bucket, which it shares with a few others. None of
// them allocates, and neither does expiry. A new key, and each Store, takes one allocation in the
// map. If K holds no pointer, the garbage collector does not scan the wheel. In the map it follows
// two pointers for each key, and those of K and V. The file docs/keyed.md has figures.
//
// # Keys
//
// Keys are compared with ==, as in a Go map. A key that is not equal to itself, such as a NaN or a
// struct that holds one, could never be found again: Set and Store panic, all other calls find
// nothing. If K is an interface type, every call with a key whose dynamic type is not comparable
// panics, as a Go map does.
//
// # Testing
//
// In Manual mode the test moves the clock with Advance, and expire runs inside that call. In a
// [testing/synctest] bubble everything works as it is. Make the set and stop it inside the bubble.
package keyed
