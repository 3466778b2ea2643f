module github.com/timingwheel-go/timingwheel/durable/internal/pgtest

go 1.25.0

replace github.com/timingwheel-go/timingwheel/durable/internal/redistest => ../redistest

require (
	github.com/stretchr/testify v1.12.1
	github.com/timingwheel-go/timingwheel/durable/internal/redistest v0.1.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
