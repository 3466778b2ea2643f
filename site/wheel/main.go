//go:build js && wasm

// Command wheel makes package wheelview callable by the page of the site. It sets the JavaScript
// object wheel, whose functions act on one wheel and return its state as JSON.
package main

import (
	"encoding/json"
	"syscall/js"

	"github.com/timingwheel-go/timingwheel/site/wheelview"
)

func main() {
	w := wheelview.New()
	state := func() any {
		text, err := json.Marshal(w.View())
		if err != nil {
			panic(err) // a View has only numbers and texts
		}
		return string(text)
	}
	// call makes a function of JavaScript whose arguments are numbers.
	call := func(arguments int, f func(args []int)) js.Func {
		return js.FuncOf(func(_ js.Value, args []js.Value) any {
			numbers := make([]int, arguments)
			for i := range min(arguments, len(args)) {
				numbers[i] = args[i].Int()
			}
			f(numbers)
			return state()
		})
	}
	js.Global().Set("wheel", map[string]any{
		"view":       call(0, func([]int) {}),
		"reset":      call(0, func([]int) { w.Reset() }),
		"skip":       call(0, func([]int) { w.Skip() }),
		"arm":        call(1, func(args []int) { w.Arm(args[0]) }),
		"stop":       call(1, func(args []int) { w.Stop(args[0]) }),
		"step":       call(1, func(args []int) { w.Step(args[0]) }),
		"reschedule": call(2, func(args []int) { w.Reschedule(args[0], args[1]) }),
		"preset":     call(1, func(args []int) { w.Preset(wheelview.Presets[args[0]%len(wheelview.Presets)]) }),
	})
	js.Global().Call("wheelReady")
	select {}
}
