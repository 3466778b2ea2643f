package figures

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table into docs/operating.md")

const (
	begin = "<!-- The table is generated: go test ./internal/figures -update -->\n"
	end   = "<!-- End of the table. -->\n"
)

// The table in docs/operating.md is generated from Table.
func TestDocumentationHasTheTable(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "operating.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, begin)
	got, after, found := strings.Cut(rest, end)
	require.True(t, found, end)
	want := "\n" + markdown() + "\n"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, got, "run go test ./internal/figures -update to write the table")
}

func markdown() string {
	var b strings.Builder
	b.WriteString("| metric, without `timingwheel_` | | unit | field of `Stats` | meaning |\n|---|---|---|---|---|\n")
	for _, m := range Table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", m.Name, m.Kind, m.Unit, m.Field, strings.TrimSpace(m.Help+" "+m.More))
	}
	return b.String()
}

// Each metric has a description, a unique name and a unique field.
func TestTableIsComplete(t *testing.T) {
	t.Parallel()
	names, fields := map[string]bool{}, map[string]bool{}
	for _, m := range Table {
		assert.False(t, names[m.Name] || fields[m.Field], "%s or %s twice", m.Name, m.Field)
		names[m.Name], fields[m.Field] = true, true
		assert.NotEmpty(t, m.Unit, m.Field)
		assert.Contains(t, []Kind{Counter, Gauge, Setting, Histogram}, m.Kind, m.Field)
		assert.Equal(t, m.Kind == Counter, strings.HasSuffix(m.Name, "_total"), m.Name)
		assert.Equal(t, m.Unit == "s", strings.HasSuffix(m.Name, "_seconds"), m.Name)
		for _, text := range []string{m.Help, m.More} {
			assert.True(t, strings.HasSuffix(text, ".") || text == "" && m.Help != "", "%s: %q", m.Field, text)
			assert.NotContains(t, text, "|", m.Field)
		}
	}
}

// A field may be a path, and durations are in seconds.
func TestFloatReadsTheFieldOfAMetric(t *testing.T) {
	t.Parallel()
	type part struct{ Max time.Duration }
	stats := &struct {
		Count  uint64
		Level  int
		Spread part
	}{3, 4, part{1500 * time.Millisecond}}
	assert.Equal(t, 3.0, Metric{Field: "Count"}.Float(stats))
	assert.Equal(t, 4.0, Metric{Field: "Level"}.Float(stats))
	assert.Equal(t, 1.5, Metric{Field: "Spread.Max"}.Float(stats))
	assert.Equal(t, "some_field", Metric{Field: "SomeField"}.Key())
}
