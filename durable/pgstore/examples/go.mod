module github.com/timingwheel-go/timingwheel/durable/pgstore/examples

go 1.25.0

replace (
	github.com/timingwheel-go/timingwheel => ../../../
	github.com/timingwheel-go/timingwheel/durable => ../../
	github.com/timingwheel-go/timingwheel/durable/internal/pgtest => ../../internal/pgtest
	github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../../internal/redistest
	github.com/timingwheel-go/timingwheel/durable/pgstore => ../
)

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel/durable v0.1.0
	github.com/timingwheel-go/timingwheel/durable/internal/pgtest v0.1.0
	github.com/timingwheel-go/timingwheel/durable/internal/redistest v0.1.0
	github.com/timingwheel-go/timingwheel/durable/pgstore v0.1.0
	golang.org/x/sync v0.22.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/netresearch/go-cron v0.9.1 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/timingwheel-go/timingwheel v0.1.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
