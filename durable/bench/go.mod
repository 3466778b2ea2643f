module github.com/timingwheel-go/timingwheel/durable/bench

go 1.25.0

replace (
	github.com/timingwheel-go/timingwheel => ../../
	github.com/timingwheel-go/timingwheel/durable => ../
	github.com/timingwheel-go/timingwheel/durable/boltstore => ../boltstore
	github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../internal/redistest
	github.com/timingwheel-go/timingwheel/durable/redisstore => ../redisstore
)

require (
	github.com/hibiken/asynq v0.26.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/timingwheel-go/timingwheel/durable v0.0.0
	github.com/timingwheel-go/timingwheel/durable/boltstore v0.0.0
	github.com/timingwheel-go/timingwheel/durable/internal/redistest v0.0.0
	github.com/timingwheel-go/timingwheel/durable/redisstore v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	github.com/timingwheel-go/timingwheel v0.0.0 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/protobuf v1.36.10 // indirect
)
