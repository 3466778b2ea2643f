package timingwheel_test

import (
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// The entries of a cache expire. The timers hold keys and not functions, and one function gets the
// expired keys in batches.
func ExampleTimeouts() {
	cache := map[uint64]string{1: "one", 2: "two", 3: "three", 4: "four"}
	expiry, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func(keys []uint64) {
		for _, key := range keys {
			delete(cache, key)
		}
		fmt.Println("expired:", keys)
	})
	if err != nil {
		panic(err)
	}
	begin := expiry.Now()
	expiry.Add(time.Minute, 1)
	expiry.Add(time.Minute, 2)
	used := expiry.Add(time.Minute, 3)
	expiry.Add(time.Hour, 4)

	expiry.Advance(begin.Add(30 * time.Second))
	used.Reschedule(time.Minute) // the entry was used, and stays for another minute
	expiry.Advance(begin.Add(60 * time.Second))
	expiry.Advance(begin.Add(90 * time.Second))

	fmt.Println("cached:", cache)
	// Output:
	// expired: [1 2]
	// expired: [3]
	// cached: map[4:four]
}

// A batch has at most 256 payloads.
func ExampleNewTimeouts() {
	w, err := timingwheel.NewTimeouts(timingwheel.Options{Manual: true}, func(expired []int) {
		fmt.Println("batch of", len(expired))
	})
	if err != nil {
		panic(err)
	}
	for i := range 600 {
		w.Add(time.Second, i)
	}
	fmt.Println("expired:", w.Advance(w.Now().Add(time.Second)))
	// Output:
	// batch of 256
	// batch of 256
	// batch of 88
	// expired: 600
}

// Before the wheel is stopped, RemoveAll returns the payloads that have not expired.
func ExampleTimeouts_RemoveAll() {
	retries, err := timingwheel.NewTimeouts(timingwheel.Options{}, func(ids []string) {
		fmt.Println("retry", ids)
	})
	if err != nil {
		panic(err)
	}
	retries.Add(time.Hour, "order 1")
	answered := retries.Add(time.Hour, "order 2")
	answered.Stop()

	fmt.Println("save for the next start:", retries.RemoveAll())
	fmt.Println("pending:", retries.Len())
	retries.Stop()
	// Output:
	// save for the next start: [order 1]
	// pending: 0
}
