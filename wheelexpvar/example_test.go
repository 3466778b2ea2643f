package wheelexpvar_test

import (
	"encoding/json"
	"expvar"
	"fmt"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheelexpvar"
)

// The variable "timers" shows a wheel on /debug/vars. The example moves the clock itself, so that
// the figures are always the same.
func ExamplePublish() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tw.Stop()
	if err := wheelexpvar.Publish("timers", tw); err != nil {
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
	fmt.Println(wheelexpvar.Publish("timers", tw))
	// Output:
	// {Pending:1 Fired:1 Lateness:{Max:1}}
	// wheelexpvar: bad name: "timers" is in use; names must be unique
}

// An expvar.Map can hold wheels that are added and removed while the program runs.
func ExampleVar() {
	wheels := expvar.NewMap("wheels")
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	wheels.Set("sessions", wheelexpvar.Var(tw))
	tw.AfterFunc(time.Hour, func() {})
	fmt.Println("pending:", strings.Contains(wheels.String(), `"pending":1`))
	tw.Stop()
	wheels.Delete("sessions")
	fmt.Println(wheels)
	// Output:
	// pending: true
	// {}
}
