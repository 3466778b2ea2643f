module github.com/timingwheel-go/timingwheel/benchmarks

go 1.25.0

require (
	github.com/RussellLuo/timingwheel v0.0.0-20220218152713-54845bda3108
	github.com/alphadose/haxmap v1.4.0
	github.com/antlabs/timer v0.1.4
	github.com/dubbogo/gost v1.14.4
	github.com/dustin/go-humanize v1.1.0
	github.com/jedib0t/go-pretty/v6 v6.8.3
	github.com/klauspost/cpuid/v2 v2.4.2
	github.com/orcaman/concurrent-map/v2 v2.0.1
	github.com/ouqiang/timewheel v1.0.1
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	github.com/rfyiamcool/go-timewheel v1.1.0
	github.com/siddontang/go v0.0.0-20180604090527-bdc77568d726
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel v0.1.0
	github.com/urfave/cli/v3 v3.14.0
	github.com/zeromicro/go-zero v1.10.3
	golang.org/x/perf v0.0.0-20251208221838-04cf7a2dca90
	golang.org/x/sys v0.47.0
	golang.org/x/term v0.40.0
	gonum.org/v1/plot v0.17.0
)

require (
	codeberg.org/go-fonts/liberation v0.5.0 // indirect
	codeberg.org/go-latex/latex v0.2.0 // indirect
	codeberg.org/go-pdf/fpdf v0.11.1 // indirect
	git.sr.ht/~sbinet/gg v0.7.0 // indirect
	github.com/ajstarks/svgo v0.0.0-20211024235047-1546f124cd8b // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/fatih/color v1.18.0 // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	go.opentelemetry.io/otel v1.40.0 // indirect
	go.opentelemetry.io/otel/trace v1.40.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.uber.org/automaxprocs v1.6.0 // indirect
	golang.org/x/image v0.34.0 // indirect
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/antlabs/stl v0.0.2 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/k0kubun/pp v3.0.1+incompatible // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20251125195548-87e1e737ad39 // indirect
	golang.org/x/text v0.34.0 // indirect
)

replace github.com/timingwheel-go/timingwheel => ../
