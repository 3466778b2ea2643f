package durableprometheus

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table into docs/durable-operations.md")

const (
	tableBegin = "<!-- The table is generated: go test ./durable/durableprometheus -update -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

// docs/durable-operations.md has the generated table of metrics.
func TestDocumentedTableMatchesMetrics(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "durable-operations.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tableBegin)
	require.True(t, found, tableBegin)
	got, after, found := strings.Cut(rest, tableEnd)
	require.True(t, found, tableEnd)
	want := "\n" + table() + "\n"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+tableBegin+want+tableEnd+after), 0o644))
		return
	}
	require.Equal(t, want, got, "run go test ./durable/durableprometheus -update")
}

func table() string {
	var b strings.Builder
	b.WriteString("| metric, without `timingwheel_durable_` | | meaning |\n|---|---|---|\n")
	row := func(name, kind, help string) { fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, kind, help) }
	kind := map[prometheus.ValueType]string{counter: "C", gauge: "G"}
	row(upName, "G", upHelp)
	for _, m := range countMetrics {
		row(m.name, kind[m.kind], m.help)
	}
	row(latenessName, "histogram", latenessHelp)
	for _, m := range queueMetrics {
		row(m.name, kind[m.kind], m.help)
	}
	return b.String()
}

// The alerts of docs/durable-operations.md use only metrics of the collector.
func TestDocumentedAlertsUseExistingMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "durable-operations.md"))
	require.NoError(t, err)
	names := regexp.MustCompile(`timingwheel_durable_(\w+)`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(names), 5)
	for _, name := range names {
		require.Contains(t, table(), "| `"+name[1]+"` |")
	}
}
