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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/exportdata"
)

// layers lists the files of the package from the bottom to the top. A file may refer to files of
// its own layer and of lower layers.
var layers = [][]string{
	{"bucket.go"},
	{"wheel.go"},
	{
		"options.go", "shard.go", "inbox.go", "arm.go", "timer.go", "driver.go", "cascade.go", "executor.go",
		"claim.go", "rearmable.go", "shutdown.go", "manual.go", "stats.go",
	},
	{"timingwheel.go", "scheduler.go", "functimer.go", "context.go"},
	{"channel.go", "timeouts.go"},
	{"delayqueue.go"},
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
