# Every check is in .ci/run, so developers and the CI run the same commands.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# COUNT is the number of runs of each benchmark. Published figures take at least 6.
bench: BENCH ?= .
bench: COUNT ?= 6
bench-std: COUNT ?= 3

# TARGETS are the benchmarks of the targets in docs/benchmarks.md, at their sizes. Each runs in its
# own process, because stopped timers of package time stay in the heap of the runtime and would
# change the figures of the next benchmark. They run in turn, COUNT times, so that a temporary load
# affects all alike.
TARGETS := \
	'^BenchmarkArmStop$$/./pending=(1k|1M)$$' '^BenchmarkArmStop$$/impl=wheel/pending=10M$$/procs=1' \
	'^BenchmarkManual$$/././pending=1k$$' '^BenchmarkPostpone$$/./pending=(1k|1M)$$' '^BenchmarkPostpone$$/./pending=100k$$/procs=2' '^BenchmarkChurn$$/./pending=1M$$' '^BenchmarkTouch$$/./pending=(1k|1M)$$' \
	'^BenchmarkFill$$/./pending=10M$$' '^BenchmarkFill$$/impl=timeouts/pending=(1M|100M)$$' '^BenchmarkGC$$/./pending=10M$$' '^BenchmarkBurst$$/./pending=1M$$' \
	'^BenchmarkBurstBlocking$$' '^BenchmarkBlocked$$' '^BenchmarkSpread$$' '^BenchmarkArmDuringBurst$$' \
	'^BenchmarkCascade$$' '^BenchmarkIdle$$/./pending=1M$$' \
	'^BenchmarkBusyBlocked$$/./busy=(4|16)$$' '^BenchmarkBusyBlockedWaking$$/./busy=(4|16)$$' '^BenchmarkBusyStream$$/./busy=(4|16)$$' '^BenchmarkBusySpread$$/./busy=(4|16)$$' \
	'^BenchmarkBusyCalls$$/./busy=(4|16)$$/call=reschedule' '^BenchmarkBusyCalls$$/./busy=(4|16)$$/call=rearm/callers=1$$' \
	'^BenchmarkBusyCalls$$/./busy=(4|16)$$/call=rearm/callers=16'

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: ## test the modules of go.work
	go test work

.PHONY: alone
alone: ## test the modules benchmarks, wheeldebug/browsertest, durable/bench and durable/bench/postgres
	.ci/run alone

.PHONY: full
full: ## run the tests at full size
	.ci/run full

.PHONY: bare
bare: ## test without servers, a browser and a C compiler
	.ci/run bare

.PHONY: race
race: ## test under the race detector
	.ci/run race

.PHONY: perturb
perturb: ## test on a runtime that delays goroutines, for PERTURBTIME (default 30s)
	.ci/run perturb

.PHONY: invariants
invariants: ## test the root package with verify() after each step
	.ci/run invariants

.PHONY: 386
386: ## test on 32 bits
	.ci/run 386

.PHONY: adopters
adopters: ## test and benchmark the module wheelnet/adopters
	.ci/run adopters

.PHONY: platforms
platforms: ## compile and vet the libraries for Windows, and some of them for macOS
	.ci/run platforms

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (default 1s)
	.ci/run fuzz

.PHONY: vet
vet: ## run go vet on all modules
	.ci/run vet

.PHONY: lint
lint: ## run staticcheck on all modules
	.ci/run lint

.PHONY: golangci
golangci: ## run stricter linters (.golangci.yml); needs golangci-lint 2, not part of the CI
	find . -name go.mod -execdir golangci-lint run ./... ';'

.PHONY: fmt
fmt: ## format all code
	gofmt -w .

.PHONY: tidy
tidy: ## update go.mod and go.sum of all modules
	GOWORK=off find . -name go.mod -execdir go mod tidy ';'

.PHONY: mutate
mutate: ## try small changes in the engine that the tests should catch; takes hours (MUTATE='-n 6 claim.go')
	nice go run ./internal/mutate $(MUTATE)

.PHONY: cover
cover: ## write the coverage of the root package to coverage.html
	go test -coverprofile coverage.out .
	go tool cover -html coverage.out -o coverage.html
	go tool cover -func coverage.out | tail -1

.PHONY: bench
bench: ## run the benchmarks of the wheel into bench.txt, for benchstat (BENCH=regexp COUNT=6)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 . ./internal/bench | tee bench.txt

.PHONY: bench-std
bench-std: ## measure the ratios to time.AfterFunc, into benchmarks/std.txt, and compare them with the targets (BENCH=regexp COUNT=3)
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	go test -c -o "$$dir/root" . && go test -c -o "$$dir/whole" ./internal/bench && go -C benchmarks test -c -o "$$dir/floor" .; \
	{ \
		printf 'cores: %s\ngo: %s\ncommit: %s\ndate: %s\ncommand: make bench-std COUNT=%s\n' "$$(getconf _NPROCESSORS_ONLN)" "$$(go env GOVERSION)" \
			"$$(git describe --always --dirty --abbrev=10 --exclude='*')" "$$(date -u +%F)" '$(COUNT)$(if $(BENCH), BENCH=$(BENCH))'; \
		for _ in $$(seq $(COUNT)); do \
			for bench in $(if $(BENCH),'$(BENCH)',$(TARGETS)); do \
				for part in root whole; do "$$dir/$$part" -test.run '^$$' -test.bench "$$bench" -test.benchmem -test.timeout 0; done; \
			done; \
			"$$dir/floor" -test.run '^$$' -test.bench Floor; \
		done | awk '/^Benchmark/ || /^(goos|goarch|cpu): / && !seen[$$1]++ { print; fflush() }'; \
	} | tee /dev/stderr >benchmarks/std.txt; \
	go -C benchmarks run ./cmd/ratios <benchmarks/std.txt

.PHONY: compare
compare: ## compare with the timers of other libraries, into benchmarks/compare.txt (three hours; COMPARE='-quick -impl std,wheel')
	go -C benchmarks run ./cmd/compare $(COMPARE)

.PHONY: figures
figures: ## publish the figures of bench-std and compare: figures.txt, tables, plots, and all that documents quote
	cat benchmarks/std.txt benchmarks/compare.txt >docs/benchmarks/figures.txt
	go -C benchmarks run ./cmd/report -o ../docs/benchmarks ../docs/benchmarks/figures.txt
	go -C benchmarks run ./cmd/ratios -o ../docs/benchmarks.md <docs/benchmarks/figures.txt
	go test -count=1 -run TestDocumentsQuoteTheMeasuredFigures ./internal/prose -update

.PHONY: site
site: ## the documentation as a site, in public/ (needs mkdocs and mkdocs-material)
	@command -v mkdocs >/dev/null || { echo "mkdocs is missing: install the packages mkdocs and mkdocs-material"; exit 1; }
	mkdocs build --quiet -f site/mkdocs.yml
	mkdir -p public/wheel
	GOOS=js GOARCH=wasm go build -trimpath -ldflags '-s -w' -o public/wheel/wheel.wasm ./site/wheel
	cp site/wheel/wheel.js site/wheel/wheel.css "$$(go env GOROOT)/lib/wasm/wasm_exec.js" public/wheel/

.PHONY: examples
examples: ## run the examples
	.ci/run examples

.PHONY: heartbeat
heartbeat: ## run the heartbeat server with its clients
	go run ./examples/heartbeat

.PHONY: picture
picture: ## draw docs/levels.svg
	go run ./internal/levelsvg > docs/levels.svg

.PHONY: release-check
release-check: ## check that the modules install as the next release, and that the figures are recent
	.ci/run release
	go test -count=1 -run '^TestFiguresAreRecent$$' ./internal/prose -release

.PHONY: ci
ci: ## run all checks of the CI
	.ci/run
