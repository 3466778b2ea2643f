module github.com/timingwheel-go/timingwheel/durable

go 1.25.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/netresearch/go-cron v0.9.1
	github.com/oklog/ulid/v2 v2.1.2
	github.com/stretchr/testify v1.12.1
	github.com/tidwall/btree v1.8.2
	github.com/timingwheel-go/timingwheel v0.1.0
)

require (
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/timingwheel-go/timingwheel => ../
