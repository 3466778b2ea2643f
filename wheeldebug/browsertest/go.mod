module github.com/timingwheel-go/timingwheel/wheeldebug/browsertest

go 1.25.0

require (
	github.com/chromedp/cdproto v0.159.2
	github.com/chromedp/chromedp v0.23.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel v0.0.0
	github.com/timingwheel-go/timingwheel/durable v0.0.0
	github.com/timingwheel-go/timingwheel/durable/boltstore v0.0.0
	github.com/timingwheel-go/timingwheel/durable/redisstore v0.0.0
	go.uber.org/atomic v1.12.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/timingwheel-go/timingwheel => ../../
	github.com/timingwheel-go/timingwheel/durable => ../../durable
	github.com/timingwheel-go/timingwheel/durable/boltstore => ../../durable/boltstore
	github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../../durable/internal/redistest
	github.com/timingwheel-go/timingwheel/durable/redisstore => ../../durable/redisstore
)
