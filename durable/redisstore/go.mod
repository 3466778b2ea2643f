module github.com/timingwheel-go/timingwheel/durable/redisstore

go 1.25.0

replace (
	github.com/timingwheel-go/timingwheel => ../../
	github.com/timingwheel-go/timingwheel/durable => ../
	github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../internal/redistest
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel/durable v0.1.0
	github.com/timingwheel-go/timingwheel/durable/internal/redistest v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/netresearch/go-cron v0.9.1 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/timingwheel-go/timingwheel v0.1.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
