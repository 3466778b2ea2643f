module github.com/timingwheel-go/timingwheel/benchmarks

go 1.25.0

require (
	github.com/dustin/go-humanize v1.1.0
	github.com/jedib0t/go-pretty/v6 v6.8.3
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel v0.0.0
	github.com/urfave/cli/v3 v3.14.0
	golang.org/x/perf v0.0.0-20251208221838-04cf7a2dca90
	golang.org/x/sys v0.39.0
	golang.org/x/term v0.29.0
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.32.0 // indirect
)

replace github.com/timingwheel-go/timingwheel => ../
