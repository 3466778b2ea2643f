package main

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// small is a run over real connections that takes about a second.
func small() config {
	cfg := defaults()
	cfg.conns, cfg.timeout, cfg.duration = 100, 400*time.Millisecond, 1100*time.Millisecond
	cfg.silent, cfg.closing, cfg.crash = 20, 10, 10
	cfg.patience = 2 * time.Second
	cfg.seed = 1
	return cfg
}

// smallComparison is a comparison that takes less than four seconds.
func smallComparison() config {
	cfg := small()
	cfg.conns, cfg.timeout, cfg.duration = 60, 150*time.Millisecond, 550*time.Millisecond
	cfg.compare = true
	return cfg
}

// runReport runs cfg and returns the result and the report.
func runReport(t *testing.T, ctx context.Context, cfg config) (*result, string) {
	t.Helper()
	require.NoError(t, cfg.validate())
	var out bytes.Buffer
	res, err := run(ctx, cfg, newDisplay(&out))
	require.NoError(t, err)
	res.print(&out)
	return res, out.String()
}

// runAtOnce runs a subtest for each case, all at the same time. The subtests wait most of the time,
// so the limit of -parallel, which is the number of processors, would only delay them. A test that
// runs many servers in this way is not parallel to other tests, because it would disturb them.
func runAtOnce[C any](t *testing.T, cases map[string]C, test func(t *testing.T, c C)) {
	var subtests sync.WaitGroup
	for name, c := range cases {
		subtests.Go(func() {
			t.Run(name, func(t *testing.T) { test(t, c) })
		})
	}
	subtests.Wait()
}

// at is the time ms milliseconds after an arbitrary start.
func at(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }

var someAddr = netip.MustParseAddrPort("127.0.0.1:4000")

// rows returns the cells of the last table in out, without the header.
func rows(out string) (rows [][]string) {
	_, body, _ := strings.Cut(out[strings.LastIndex(out, "┌"):], "├")
	for line := range strings.Lines(body) {
		if inner, ok := strings.CutPrefix(line, "│"); ok {
			var row []string
			for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(inner), "│"), "│") {
				row = append(row, strings.TrimSpace(cell))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// column returns a cell of each row.
func column(rows [][]string, i int) (cells []string) {
	for _, row := range rows {
		cells = append(cells, row[i])
	}
	return cells
}
