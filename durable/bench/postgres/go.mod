module github.com/timingwheel-go/timingwheel/durable/bench/postgres

go 1.25.0

replace (
	github.com/timingwheel-go/timingwheel => ../../../
	github.com/timingwheel-go/timingwheel/durable => ../../
	github.com/timingwheel-go/timingwheel/durable/bench => ../
	github.com/timingwheel-go/timingwheel/durable/internal/pgtest => ../../internal/pgtest
	github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../../internal/redistest
	github.com/timingwheel-go/timingwheel/durable/pgstore => ../../pgstore
)

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.43.0
	github.com/timingwheel-go/timingwheel/durable v0.1.0
	github.com/timingwheel-go/timingwheel/durable/bench v0.1.0
	github.com/timingwheel-go/timingwheel/durable/internal/pgtest v0.1.0
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
	github.com/riverqueue/river v0.43.0 // indirect
	github.com/riverqueue/river/riverdriver v0.43.0 // indirect
	github.com/riverqueue/river/rivershared v0.43.0 // indirect
	github.com/riverqueue/river/rivertype v0.43.0 // indirect
	github.com/tidwall/gjson v1.19.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	github.com/timingwheel-go/timingwheel v0.1.0 // indirect
	github.com/timingwheel-go/timingwheel/durable/internal/redistest v0.1.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)
