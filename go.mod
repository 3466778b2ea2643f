module github.com/timingwheel-go/timingwheel

go 1.25.0

require (
	github.com/puzpuzpuz/xsync/v4 v4.5.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/atomic v1.12.0
	golang.org/x/sys v0.47.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
