// Package keyed keeps one timeout for each key: sessions by id, connections by address, cache entries, locks and leases by name.
//
//	sessions, err := keyed.New(timingwheel.Options{}, func(ids []string) {
//		for _, id := range ids {
//			store.Remove(id)
//		}
//	})
//	if err != nil {
//		return err
//	}
//	sessions.Set("a7", 20*time.Minute)   // true: it is new
//	sessions.Touch("a7", 20*time.Minute) // true: it has 20 minutes again
//	sessions.Delete("a7")                // true: it will never be reported
//
// [Keys] has a timeout of its own for each key. [Heartbeats] is the same with one timeout for all of them. Both are a thin layer over
// [timingwheel.Timeouts], whose guarantees they keep: never early, at most a tick late, no goroutine while nothing is due.
//
// # When not to use it
//
// Where the program has an object for each key anyway, a [timingwheel.Timer] in that object does the same, without the map that this
// package holds. Where a value is to be kept with each key, and the least used ones are to go when there are too many, a cache library
// is the better choice: nothing here limits the number of keys.
//
// # Guarantees
//
// A key is present from the Set that adds it until a Delete or an expiry takes it out, and the calls behave as if they happened one
// after the other for each key.
//
//   - Each Set that returned true has exactly one end: the key is reported to the expire function once, or one Delete returned true, or the
//     wheel was stopped. Set and Touch of a present key never add a second timer.
//   - A key has been taken out when the expire function sees it. The function may set it again.
//   - A Set, Touch or Delete that comes when the time is up, and before the key has been taken out, is in time: the key is not reported.
//   - A Delete that returned false came too late, or there was no such key. One that returned true prevented the report.
//   - No lock is held while the expire function runs. It may call everything here, Stop included.
//
// # Cost
//
// Touch, Set of a present key and Beat are one lookup without a lock and one
// [timingwheel.Timer.Reschedule]. They allocate nothing, and neither does expiry. A new key takes
// one allocation in the map. The file docs/keyed.md in the repository has figures, and says how the
// map was chosen.
//
// # Keys
//
// Keys are compared with ==, as in a Go map. A key that is not equal to itself, such as a NaN or a struct that holds one, could never
// be found again: Set panics, all else finds nothing. With a K of an interface type, a dynamic type that is not comparable makes every
// call with that key panic, as a Go map does.
//
// # Testing
//
// In Manual mode the test moves the clock with Advance and expire runs inside that call. In a [testing/synctest] bubble everything
// works as it is; make the keys and stop them inside of it.
package keyed
