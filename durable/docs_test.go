package durable_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/durable-operations.md has an entry for each error.
func TestOperationsExplainAllErrors(t *testing.T) {
	t.Parallel()
	names := func(path, pattern string) (found []string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
		return found
	}
	declared := names("errors.go", `(?m)^\t(Err\w+) +=`)
	require.Greater(t, len(declared), 10)
	require.ElementsMatch(t, declared, names("../docs/durable-operations.md", "(?m)^\\| `(Err\\w+)` \\|"))
}
