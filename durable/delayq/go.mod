module github.com/timingwheel-go/timingwheel/durable/delayq

go 1.25.0

replace (
	github.com/timingwheel-go/timingwheel => ../../
	github.com/timingwheel-go/timingwheel/durable => ../
	github.com/timingwheel-go/timingwheel/durable/boltstore => ../boltstore
	github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../internal/redistest
	github.com/timingwheel-go/timingwheel/durable/redisstore => ../redisstore
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/jedib0t/go-pretty/v6 v6.8.3
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel v0.0.0
	github.com/timingwheel-go/timingwheel/durable v0.0.0
	github.com/timingwheel-go/timingwheel/durable/boltstore v0.0.0
	github.com/timingwheel-go/timingwheel/durable/internal/redistest v0.0.0
	github.com/timingwheel-go/timingwheel/durable/redisstore v0.0.0
	github.com/urfave/cli/v3 v3.14.0
	golang.org/x/term v0.29.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.22.0 // indirect
)
