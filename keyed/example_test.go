package keyed_test

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/keyed"
)

// Sessions end after 20 minutes without use. The example moves the clock itself. Without Manual the
// clock runs by itself.
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
	fmt.Println("ann is active:", sessions.Touch("ann", 20*time.Minute))
	fmt.Println("bob logs out:", sessions.Delete("bob"))
	minute(20)
	fmt.Println("cat is active:", sessions.Touch("cat", 20*time.Minute))
	minute(35)
	fmt.Println("left:", sessions.Len())
	// Output:
	// ann is active: true
	// bob logs out: true
	// ended: [cat dan]
	// cat is active: false
	// ended: [ann]
	// left: 0
}

// Connections are closed after a minute without use. Touch restarts an entry's time to live, and
// Load does not.
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
	conns.StoreFor("south", io.NopCloser(nil), 2*time.Minute) // its own time to live
	second(45)
	fmt.Println("north is used:", conns.Touch("north"))
	second(90)
	_, ok := conns.Load("north")
	fmt.Println("north is open:", ok)
	second(120)
	for host := range conns.Range {
		fmt.Println("open:", host)
	}
	// A deleted entry is not passed to the expire function.
	if conn, ok := conns.LoadAndDelete("north"); ok {
		conn.Close()
	}
	// Output:
	// north is used: true
	// north is open: true
	// idle: north
	// idle: south
}

// A document is saved two seconds after the last of several changes. Set returns true only for the
// first change.
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

// The expire function may set its keys again. Here it asks for a lease three times before it gives
// up.
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

// All yields the keys and their deadlines.
func ExampleKeys_All() {
	keys, err := keyed.New(timingwheel.Options{Manual: true}, func([]string) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer keys.Stop()
	for i := range 5 {
		keys.Set(fmt.Sprint("key ", i), time.Duration(i)*time.Hour+time.Minute)
	}
	now := keys.Now()
	longest, at := "none", now
	for key, deadline := range keys.All() {
		if deadline.After(at) {
			longest, at = key, deadline
		}
	}
	fmt.Println(longest, "expires last, in", at.Sub(now))
	// Output:
	// key 4 expires last, in 4h1m0s
}

// Each worker must send a heartbeat every 30 seconds.
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
