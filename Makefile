# Every check is a part of .ci/run, so that a developer and the CI run the same commands.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Of the benchmarks: how often. Published figures take at least 6 runs.
bench: BENCH ?= .
bench: COUNT ?= 6
bench-std: COUNT ?= 3

# What the targets of docs/benchmarks.md are about, at their sizes. Each has a process of its own, as timers of
# package time that were stopped stay in the heap of the runtime, and the next benchmark's figures would be
# theirs. They take turns COUNT times, so that a machine that is slow for a while is so for all.
TARGETS := \
	'^BenchmarkArmStop$$/./pending=(1k|1M)$$' '^BenchmarkArmStop$$/impl=wheel/pending=10M$$/procs=1' \
	'^BenchmarkManual$$/././pending=1k$$' '^BenchmarkPostpone$$/./pending=(1k|1M)$$' '^BenchmarkPostpone$$/./pending=100k$$/procs=2' '^BenchmarkChurn$$/./pending=1M$$' \
	'^BenchmarkFill$$/./pending=10M$$' '^BenchmarkFill$$/impl=timeouts/pending=(1M|100M)$$' '^BenchmarkGC$$/./pending=10M$$' '^BenchmarkBurst$$/./pending=1M$$' \
	'^BenchmarkBurstBlocking$$' '^BenchmarkBlocked$$' '^BenchmarkSpread$$' '^BenchmarkArmDuringBurst$$' \
	'^BenchmarkCascade$$' '^BenchmarkIdle$$/./pending=1M$$' \
	'^BenchmarkBusyBlocked$$/./busy=(4|16)$$' '^BenchmarkBusyStream$$/./busy=(4|16)$$' '^BenchmarkBusySpread$$/./busy=(4|16)$$' \
	'^BenchmarkBusyCalls$$/./busy=(4|16)$$/call=reschedule' '^BenchmarkBusyCalls$$/./busy=(4|16)$$/call=rearm/callers=1$$' \
	'^BenchmarkBusyCalls$$/./busy=(4|16)$$/call=rearm/callers=16'

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: ## tests of all modules, as the README says
	go test work

.PHONY: bare
bare: ## tests of what uses Redis, a browser or a C compiler, without them
	.ci/run bare

.PHONY: race
race: ## the same under the race detector
	.ci/run race

.PHONY: invariants
invariants: ## tests of the root package with verify() after each step
	.ci/run invariants

.PHONY: 386
386: ## tests on 32 bits
	.ci/run 386

.PHONY: adopters
adopters: ## tests and benchmarks of the module wheelnet/adopters
	.ci/run adopters

.PHONY: arm64
arm64: ## compile and vet the libraries for arm64
	.ci/run arm64

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 3s)
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
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go test -c -o "$$dir/root" . && go test -c -o "$$dir/floor" ./benchmarks; \
	for _ in $$(seq $(COUNT)); do \
		for bench in $(if $(BENCH),'$(BENCH)',$(TARGETS)); do \
			"$$dir/root" -test.run '^$$' -test.bench "$$bench" -test.benchmem -test.timeout 0; \
		done; \
		"$$dir/floor" -test.run '^$$' -test.bench Floor; \
	done | tee /dev/stderr | go run ./benchmarks/cmd/ratios

.PHONY: compare
compare: ## this library beside the timers of other libraries, into compare.txt (COMPARE='-quick -impl std,wheel')
	go run ./benchmarks/cmd/compare $(COMPARE)

.PHONY: report report-quick
report: ## the same, in full (an hour and a half), with tables and plots into docs/benchmarks/
report-quick: COMPARE = -quick
report-quick: ## a quick one (six minutes)
report report-quick:
	mkdir -p docs/benchmarks
	go run ./benchmarks/cmd/compare $(COMPARE) -o docs/benchmarks/figures.txt
	go run ./benchmarks/cmd/report -o docs/benchmarks docs/benchmarks/figures.txt

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
