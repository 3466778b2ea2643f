package payment_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/docsnippet"
)

// document is the page with the code of this package.
const document = "../../../docs/testing.md"

// The code on the page is code that runs, so the page stays up to date.
func TestPageShowsThisCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	clocks, err := filepath.Glob("../../../clocks/*/example_test.go")
	require.NoError(t, err)
	var files []string
	for _, name := range append(names, clocks...) {
		code, err := os.ReadFile(name)
		require.NoError(t, err)
		files = append(files, string(code))
	}
	all := docsnippet.All(string(text))
	assert.GreaterOrEqual(t, len(all), 10, "the number of Go blocks on the page")
	for _, s := range all {
		assert.True(t, docsnippet.InOneOf(files, s), "docs/testing.md has code that is neither in this package nor in an example of clocks:\n%s", s)
	}
}
