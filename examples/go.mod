module github.com/timingwheel-go/timingwheel/examples

go 1.25.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/KimMachineGun/automemlimit v1.0.1
	github.com/alitto/pond/v2 v2.7.1
	github.com/coder/websocket v1.8.15
	github.com/dustin/go-humanize v1.1.0
	github.com/gammazero/workerpool v1.2.1
	github.com/google/pprof v0.0.0-20260115054156-294ebfa9ad83
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/jedib0t/go-pretty/v6 v6.8.3
	github.com/panjf2000/ants/v2 v2.12.1
	github.com/robfig/cron/v3 v3.0.1
	github.com/sourcegraph/conc v0.3.0
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel v0.0.0
	github.com/timingwheel-go/timingwheel/durable v0.0.0
	github.com/timingwheel-go/timingwheel/durable/boltstore v0.0.0
	github.com/urfave/cli/v3 v3.14.0
	go.uber.org/atomic v1.12.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.22.0
	golang.org/x/term v0.45.0
	golang.org/x/time v0.14.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/gammazero/deque v1.2.1 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/pbnjay/memory v0.0.0-20210728143218-7b4eea64cf58 // indirect
	github.com/puzpuzpuz/xsync/v4 v4.5.0 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	go.uber.org/multierr v1.9.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.22.0 // indirect
)

replace (
	github.com/timingwheel-go/timingwheel => ../
	github.com/timingwheel-go/timingwheel/durable => ../durable
	github.com/timingwheel-go/timingwheel/durable/boltstore => ../durable/boltstore
)
