package timingwheel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	mostFields  = 20
	mostMethods = 30
)

// No type of the package grows into one that does everything. Stats is data that programs read.
func TestTypesStaySmall(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fields, methods := map[string]int{}, map[string]int{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[receiver(n.Recv.List[0].Type)]++
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					fields[n.Name.Name] = s.Fields.NumFields()
				}
			}
			return true
		})
	}
	require.NotZero(t, methods["shard"])
	for name, n := range methods {
		assert.LessOrEqual(t, n, mostMethods, "methods of %s", name)
	}
	for name, n := range fields {
		if name != "Stats" {
			assert.LessOrEqual(t, n, mostFields, "fields of %s", name)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	}
	return x.(*ast.Ident).Name
}
