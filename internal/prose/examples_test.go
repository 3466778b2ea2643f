package prose

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// incomplete returns the examples of a test file that do not run as pkg.go.dev shows them. The page
// shows an example as a program, with the declarations of its file that it needs. If the example
// needs a declaration of another file or belongs to the package itself, the page shows only the
// body of the function.
func incomplete(path string, text []byte) (found []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, example := range doc.Examples(file) {
		if example.Play == nil || !declaresAll(fset, example.Play) {
			found = append(found, fmt.Sprintf("%s: Example%s", path, example.Name))
		}
	}
	return found, nil
}

// declaresAll reports whether a program declares or imports all that it refers to.
func declaresAll(fset *token.FileSet, program *ast.File) bool {
	var text bytes.Buffer
	if printer.Fprint(&text, fset, program) != nil {
		return false
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", text.Bytes(), 0)
	if err != nil {
		return false
	}
	imports := ""
	for _, i := range file.Imports {
		if i.Name != nil {
			imports += " " + i.Name.Name
		}
		imports += " " + i.Path.Value
	}
	imported := strings.FieldsFunc(imports, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' })
	return !slices.ContainsFunc(file.Unresolved, func(id *ast.Ident) bool {
		return types.Universe.Lookup(id.Name) == nil && !slices.Contains(imported, id.Name)
	})
}

func TestExamplesRunAsShown(t *testing.T) {
	t.Parallel()
	count := 0
	require.NoError(t, Walk(root, func(name string) error {
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		count += strings.Count(string(text), "\nfunc Example")
		found, err := incomplete(name, text)
		for _, example := range found {
			t.Error(example, "needs a declaration of another file, or the package is not a _test package")
		}
		return err
	}))
	require.Positive(t, count)
}

func TestExampleThatNeedsAnotherFileIsFound(t *testing.T) {
	t.Parallel()
	const head = "package p_test\n\nimport \"fmt\"\n\n"
	for _, test := range []struct{ text, want string }{
		{head + "func Example() { fmt.Println(1) }\n", ""},
		{head + "func help() {}\n\nfunc Example() { help(); fmt.Println(1) }\n", ""},
		{head + "func ExampleT() { help(); fmt.Println(1) }\n", "a_test.go: ExampleT"},
		{head + "func help() { more() }\n\nfunc ExampleT_m() { help(); fmt.Println(1) }\n", "a_test.go: ExampleT_m"},
		{head + "func help() { mt() }\n\nfunc ExampleT_m() { help(); fmt.Println(1) }\n", "a_test.go: ExampleT_m"},
		{"package p\n\nfunc ExampleT() {}\n", "a_test.go: ExampleT"},
	} {
		found, err := incomplete("a_test.go", []byte(test.text))
		require.NoError(t, err)
		require.Equal(t, test.want, strings.Join(found, "\n"), test.text)
	}
}
