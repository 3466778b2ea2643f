package results

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutcomesAreReadFromAmongResults(t *testing.T) {
	var text strings.Builder
	require.NoError(t, WriteOutcome(&text, "Fill/impl=x/pending=1M", true, "timeout after 5s, arming 1000000 timers"))
	text.WriteString("BenchmarkFill/impl=std/pending=1M 1 5 ns/op\n--- FAIL: TestSomething (0.00s)\n")
	require.NoError(t, WriteOutcome(&text, "Churn/impl=y/pending=1k", false, "cannot: at all"))
	all, err := ReadOutcomes(strings.NewReader(text.String()))
	require.NoError(t, err)
	assert.Equal(t, []Outcome{
		{Parse("Fill/impl=x/pending=1M"), true, "timeout after 5s, arming 1000000 timers"},
		{Parse("Churn/impl=y/pending=1k"), false, "cannot: at all"},
	}, all)
	m, err := Read(strings.NewReader(text.String()), "text", Compare)
	require.NoError(t, err)
	assert.Len(t, m.Benchmarks, 1, "outcomes are not results")
}
