package payment_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// page is the document whose code this package is.
const page = "../../../docs/testing.md"

var block = regexp.MustCompile("(?s)```go\n(.*?)```")

// snippets returns the blocks of Go in a document.
func snippets(text string) (code []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		code = append(code, m[1])
	}
	return code
}

// contains reports whether the lines of a snippet stand in a file one after the other, indented or
// not.
func contains(file, snippet string) bool {
	lines := strings.Split(strings.TrimSuffix(snippet, "\n"), "\n")
	for depth := range 4 {
		var b strings.Builder
		for _, line := range lines {
			b.WriteByte('\n')
			if line != "" {
				b.WriteString(strings.Repeat("\t", depth) + line)
			}
		}
		if strings.Contains("\n"+file, b.String()+"\n") {
			return true
		}
	}
	return false
}

// What the page shows is what runs, so that it cannot go out of date.
func TestPageShowsThisCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
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
	all := snippets(string(text))
	assert.GreaterOrEqual(t, len(all), 10, "are there blocks of another kind?")
	for _, s := range all {
		found := false
		for _, f := range files {
			found = found || contains(f, s)
		}
		assert.True(t, found, "docs/testing.md shows code that is neither in this package nor in an example of clocks:\n%s", s)
	}
}

// Each test that is there to be shown is shown.
func TestPageShowsAllTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, name := range []string{"bubble_test.go", "manual_test.go", "fuzz_test.go", "leak_test.go"} {
		code, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(code), -1) {
			if m[1] != "TestErrors" { // of the service itself
				assert.Contains(t, string(text), "func "+m[1]+"(", name)
			}
		}
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	file := "package p\n\nfunc f() {\n\tif x {\n\n\t\ty()\n\t}\n}\n"
	for _, s := range []string{"func f() {\n", "if x {\n\n\ty()\n}\n", "y()\n", "package p\n", "}\n"} {
		assert.True(t, contains(file, s), "%q", s)
	}
	for _, s := range []string{"if x {\n\ty()\n}\n", "y\n", "if x {\n\n\t\ty()\n}\n", "func f() {\n\ty()\n", "z()\n"} {
		assert.False(t, contains(file, s), "%q", s)
	}
	assert.Equal(t, []string{"a\n", "b\n"}, snippets("x\n```go\na\n```\n```\nno\n```\n```go\nb\n```\n"))
}
