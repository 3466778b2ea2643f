package durable_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of errors into docs/durable-operations.md")

// docs/durable-operations.md has the generated table of errors: their doc comments.
func TestOperationsListAllErrors(t *testing.T) {
	t.Parallel()
	const (
		path  = "../docs/durable-operations.md"
		begin = "<!-- The table is generated: go test ./durable -run TestOperationsListAllErrors -update -->\n"
		end   = "<!-- End of the errors. -->\n"
	)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, begin)
	got, after, found := strings.Cut(rest, end)
	require.True(t, found, end)
	want := "\n| error | meaning |\n|---|---|\n" + errorRows(t) + "\n"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, got, "run go test ./durable -run TestOperationsListAllErrors -update")
}

// errorRows returns a row of a table for each exported error of errors.go.
func errorRows(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments)
	require.NoError(t, err)
	opening, link := regexp.MustCompile(`^Err\w+ means that `), regexp.MustCompile(`\[([\w.]+)\]`)
	var b strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Names[0].IsExported() {
			require.NotNil(t, v.Doc, v.Names[0].Name)
			meaning := opening.ReplaceAllString(strings.Join(strings.Fields(v.Doc.Text()), " "), "")
			meaning = link.ReplaceAllString(strings.ToUpper(meaning[:1])+meaning[1:], "`$1`")
			b.WriteString("| `" + v.Names[0].Name + "` | " + meaning + " |\n")
		}
		return true
	})
	return b.String()
}
