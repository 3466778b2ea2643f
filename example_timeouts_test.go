package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// A cache whose entries expire: the timers carry keys, not functions, and one function gets what has
// expired in batches.
func ExampleTimeouts() {
	cache := map[uint64]string{1: "one", 2: "two", 3: "three", 4: "four"}
	expiry, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func(keys []uint64) {
		for _, key := range keys {
			delete(cache, key)
		}
		fmt.Println("expired:", keys)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	begin := expiry.Now()
	expiry.Add(time.Minute, 1)
	expiry.Add(time.Minute, 2)
	used := expiry.Add(time.Minute, 3)
	expiry.Add(time.Hour, 4)

	expiry.Advance(begin.Add(30 * time.Second))
	used.Reschedule(time.Minute) // the entry was used: it stays for another minute
	expiry.Advance(begin.Add(60 * time.Second))
	expiry.Advance(begin.Add(90 * time.Second))

	fmt.Println("cached:", cache)
	fmt.Println("removed:", expiry.RemoveAll(), "pending:", expiry.Len())
	// Output:
	// expired: [1 2]
	// expired: [3]
	// cached: map[4:four]
	// removed: [4] pending: 0
}
