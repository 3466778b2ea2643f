module github.com/timingwheel-go/timingwheel/clocks

go 1.25.0

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/jonboulle/clockwork v0.5.0
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel v0.1.0
)

require (
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/timingwheel-go/timingwheel => ../
