# Every check is a part of .ci/run, so that a developer and the CI run the same commands.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Of the benchmarks: which, and how often. Published figures take at least 6 runs.
bench: BENCH ?= .
bench: COUNT ?= 6
bench-std: BENCH ?= $(TARGETS)
bench-std: COUNT ?= 3

# What the targets of docs/benchmarks.md are about, at their sizes: some 2 minutes for each COUNT.
TARGETS := ^BenchmarkArmStop$$/./pending=(1k|1M|10M)$$|^Benchmark(Postpone|Churn)$$/./pending=(1k|1M)$$
TARGETS := $(TARGETS)|^Benchmark(Fill|GC)$$/./pending=10M$$|^BenchmarkManual$$/././pending=1k$$
TARGETS := $(TARGETS)|^Benchmark(Burst|BurstBlocking|Blocked|Spread|ArmDuringBurst|Idle)$$/./pending=(1M|10k|2k)$$

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: ## tests of all modules, as the README says
	go test work

.PHONY: race
race: ## the same under the race detector
	.ci/run race

.PHONY: invariants
invariants: ## tests of the root package with verify() after each step
	.ci/run invariants

.PHONY: 386
386: ## tests on 32 bits
	.ci/run 386

.PHONY: arm64
arm64: ## compile and vet for arm64
	.ci/run arm64

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 10s)
	.ci/run fuzz

.PHONY: vet
vet: ## go vet of all modules
	.ci/run vet

.PHONY: lint
lint: ## staticcheck of all modules
	.ci/run lint

.PHONY: golangci
golangci: ## stricter linters (.golangci.yml); not part of CI, needs golangci-lint 2
	go list -m -f '{{.Dir}}' | while read -r module; do (cd "$$module" && golangci-lint run ./...); done

.PHONY: fmt
fmt: ## format all code
	gofmt -w .

.PHONY: tidy
tidy: ## bring go.mod and go.sum of all modules up to date
	go list -m -f '{{.Dir}}' | while read -r module; do (cd "$$module" && GOWORK=off go mod tidy); done

.PHONY: cover
cover: ## coverage of the root package, as coverage.html
	go test -coverprofile coverage.out .
	go tool cover -html coverage.out -o coverage.html
	go tool cover -func coverage.out | tail -1

.PHONY: bench
bench: ## benchmarks of the root package into bench.txt for benchstat (BENCH=regexp COUNT=6)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 . | tee bench.txt

.PHONY: bench-std
bench-std: ## the targets beside the ratios to time.AfterFunc measured now (BENCH=regexp COUNT=3)
	@{ go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 . ; \
	  go test -run '^$$' -bench Floor -count $(COUNT) ./benchmarks ; } \
	| tee /dev/stderr | go run ./benchmarks/cmd/ratios

.PHONY: examples
examples: ## run each small example
	.ci/run examples

.PHONY: heartbeat
heartbeat: ## run the heartbeat server and its clients
	go run ./examples/heartbeat

.PHONY: picture
picture: ## draw docs/levels.svg again
	go run ./internal/levelsvg > docs/levels.svg

.PHONY: ci
ci: ## everything that CI checks
	.ci/run
