package expvars_test

import (
	"encoding/json"
	"expvar"
	"fmt"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/expvars"
)

// A wheel on /debug/vars. Its clock is driven by hand here, so that the figures are always the same.
func ExamplePublish() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()
	if err := expvars.Publish("timers", tw); err != nil {
		fmt.Println(err)
		return
	}

	tw.AfterFunc(time.Second, func() {})
	tw.AfterFunc(time.Hour, func() {})
	tw.Advance(tw.Now().Add(2 * time.Second))

	var published struct {
		Pending, Fired int
		Lateness       struct {
			Max float64 `json:"max_seconds"`
		}
	}
	if err := json.Unmarshal([]byte(expvar.Get("timers").String()), &published); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v\n", published)
	fmt.Println(expvars.Publish("timers", tw))
	// Output:
	// {Pending:1 Fired:1 Lateness:{Max:1}}
	// expvars: name in use: "timers"; accepted is one that no variable has
}

// Wheels that come and go are entries of a map.
func ExampleVar() {
	wheels := expvar.NewMap("wheels")
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	wheels.Set("sessions", expvars.Var(tw))
	fmt.Println("shown:", wheels.Get("sessions") != nil)
	tw.Stop()
	wheels.Delete("sessions")
	fmt.Println("shown:", wheels.Get("sessions") != nil)
	// Output:
	// shown: true
	// shown: false
}
