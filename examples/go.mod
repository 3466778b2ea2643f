module github.com/timingwheel-go/timingwheel/examples

go 1.25.0

require github.com/timingwheel-go/timingwheel v0.0.0

replace github.com/timingwheel-go/timingwheel => ../
