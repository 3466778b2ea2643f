package timingwheel

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/exportdata"
)

const (
	mostFields  = 20
	mostMethods = 30
)

// Types with many fields or methods have too many tasks. Stats is exempt, because its fields are
// data for programs.
func TestTypesHaveFewFieldsAndMethods(t *testing.T) {
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

// layers lists the files of the package from the bottom to the top. A file may refer to files of
// its own layer and of lower layers.
var layers = [][]string{
	{"bucket.go"},
	{"inbox.go"},
	{"wheel.go"},
	{"options.go"},
	{"histogram.go"},
	{"due.go", "pool.go"},
	{"owner.go"},
	{"shard.go", "driver.go", "invariants_off.go"},
	{"timer.go"},
	{"engine.go", "worker.go", "executor.go", "manual.go"},
	{"stats.go"},
	{"profile.go"},
	{"timeouts.go"},
	{"timingwheel.go", "scheduler.go", "functimer.go", "context.go"},
	{"channel.go"},
	{"delayqueue.go"},
	{"doc.go"},
}

// Dependencies point one way: no file refers to a layer above its own.
func TestFilesReferOnlyDownwards(t *testing.T) {
	t.Parallel()
	if strconv.IntSize == 32 {
		t.Skip("slow where the processor is emulated")
	}
	layer := map[string]int{}
	for n, files := range layers {
		for _, name := range files {
			require.NotContains(t, layer, name)
			layer[name] = n
		}
	}
	fset := token.NewFileSet()
	pkg, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		require.Contains(t, layer, name, "the file has no layer")
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	require.Len(t, layer, len(files))

	imports, err := exportdata.List(".", pkg.Imports...) // compiled for this test already
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no go command")
	}
	require.NoError(t, err)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: exportdata.Importer(fset, imports)}
	checked, err := config.Check(pkg.Name, fset, files, info)
	require.NoError(t, err)
	fileOf := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	down := 0
	for name, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		from, to := fileOf(name.Pos()), fileOf(object.Pos())
		assert.GreaterOrEqual(t, layer[from], layer[to], "%s refers to %s of %s", from, object.Name(), to)
		if layer[from] > layer[to] {
			down++
		}
	}
	require.Positive(t, down)
}
