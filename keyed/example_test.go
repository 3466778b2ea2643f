package keyed_test

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/keyed"
)

// Sessions that end when they have not been used for 20 minutes. The clock is moved by hand here; without Manual it goes by itself.
func ExampleKeys() {
	sessions, err := keyed.New(timingwheel.Options{Manual: true}, func(ids []string) {
		slices.Sort(ids)
		fmt.Println("ended:", ids)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sessions.Stop()
	begin := sessions.Now()
	minute := func(m int) { sessions.Advance(begin.Add(time.Duration(m) * time.Minute)) }

	for _, id := range []string{"ann", "bob", "cat", "dan"} {
		sessions.Set(id, 20*time.Minute)
	}
	minute(15)
	fmt.Println("ann is here:", sessions.Touch("ann", 20*time.Minute))
	fmt.Println("bob logs out:", sessions.Delete("bob"))
	minute(20)
	fmt.Println("cat comes too late:", sessions.Touch("cat", 20*time.Minute))
	minute(35)
	fmt.Println("left:", sessions.Len())
	// Output:
	// ann is here: true
	// bob logs out: true
	// ended: [cat dan]
	// cat comes too late: false
	// ended: [ann]
	// left: 0
}

// Connections that are closed when they have not been used for a minute. Load does not extend an
// entry's time, Touch does.
func ExampleMap() {
	conns, err := keyed.NewMap(timingwheel.Options{Manual: true}, time.Minute, func(host string, conn io.Closer) {
		fmt.Println("idle:", host)
		conn.Close()
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conns.Stop()
	begin := conns.Now()
	second := func(s int) { conns.Advance(begin.Add(time.Duration(s) * time.Second)) }

	conns.Store("north", io.NopCloser(nil))
	conns.StoreFor("south", io.NopCloser(nil), 2*time.Minute) // has a time of its own
	second(45)
	fmt.Println("north is used:", conns.Touch("north"))
	second(90)
	_, ok := conns.Load("north")
	fmt.Println("north is open:", ok)
	second(120)
	for host := range conns.Range {
		fmt.Println("open:", host)
	}
	// A deleted entry is not given to the function.
	if conn, ok := conns.LoadAndDelete("north"); ok {
		conn.Close()
	}
	// Output:
	// north is used: true
	// north is open: true
	// idle: north
	// idle: south
}

// Set says whether the key is new: so the first message of a burst starts the wait, and the last one decides when it ends.
func ExampleKeys_Set() {
	flush, err := keyed.New(timingwheel.Options{Manual: true}, func(documents []string) { fmt.Println("save", documents) })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer flush.Stop()
	begin := flush.Now()
	for second := range 4 {
		flush.Advance(begin.Add(time.Duration(second) * time.Second))
		if flush.Set("letter.txt", 2*time.Second) {
			fmt.Println("unsaved changes")
		}
	}
	flush.Advance(begin.Add(5 * time.Second))
	// Output:
	// unsaved changes
	// save [letter.txt]
}

// The expire function may set its keys again: a lease is asked for three times before it is given up.
func ExampleNew() {
	var leases *keyed.Keys[string]
	asked := map[string]int{}
	leases, err := keyed.New(timingwheel.Options{Manual: true}, func(names []string) {
		for _, name := range names {
			if asked[name]++; asked[name] < 3 {
				fmt.Println("no answer from", name)
				leases.Set(name, time.Minute)
			} else {
				fmt.Println("giving up", name)
			}
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer leases.Stop()
	leases.Set("printer", time.Minute)
	for next, pending := leases.Next(); pending; next, pending = leases.Next() {
		leases.Advance(next)
	}
	// Output:
	// no answer from printer
	// no answer from printer
	// giving up printer
}

// All shows what is there, and when it ends.
func ExampleKeys_All() {
	keys, err := keyed.New(timingwheel.Options{Manual: true}, func([]int) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keys.Stop()
	for i := range 5 {
		keys.Set(i, time.Duration(i)*time.Hour+time.Minute)
	}
	now := keys.Now()
	longest, at := 0, now
	for key, deadline := range keys.All() {
		if deadline.After(at) {
			longest, at = key, deadline
		}
	}
	fmt.Println("the last one is", longest, "in", at.Sub(now))
	// Output:
	// the last one is 4 in 4h1m0s
}

// Workers that have to give a sign of life every 30 seconds.
func ExampleHeartbeats() {
	workers, err := keyed.NewHeartbeats(timingwheel.Options{Manual: true}, 30*time.Second, func(names []string) {
		fmt.Println("lost:", names)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer workers.Stop()
	begin := workers.Now()
	workers.Beat("north")
	workers.Beat("south")
	for second := 10; second <= 60; second += 10 {
		workers.Advance(begin.Add(time.Duration(second) * time.Second))
		workers.Beat("north")
		if second == 50 && workers.Beat("south") {
			fmt.Println("south is back")
		}
	}
	fmt.Println("working:", workers.Len())
	// Output:
	// lost: [south]
	// south is back
	// working: 2
}
