package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// hooks returns the names of the functions of the file that call a function called perturb….
func hooks(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var names []string
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name, ok := call.Fun.(*ast.Ident); ok && strings.HasPrefix(name.Name, "perturb") {
					names = append(names, f.Name.Name)
				}
			}
			return true
		})
	}
	return names
}

// The compilation of a changed runtime takes a minute, so only ".ci/run perturb" does it.
func TestOverlayHasAllDelays(t *testing.T) {
	t.Parallel()
	goroot := goroot(t)
	name, err := overlay(goroot, t.TempDir())
	require.NoError(t, err)
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	var files struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(data, &files))
	changed := func(name string) string {
		return files.Replace[filepath.Join(goroot, "src", filepath.FromSlash(name))]
	}
	assert.Equal(t, []string{"main", "gopark", "goready", "execute", "newproc"}, hooks(t, changed("runtime/proc.go")))
	assert.Equal(t, []string{"Lock", "TryLock", "Unlock"}, hooks(t, changed("internal/sync/mutex.go")))
	methods, err := os.ReadFile(filepath.Join(goroot, "src/sync/atomic/type.go"))
	require.NoError(t, err)
	assert.Len(t, hooks(t, changed("sync/atomic/type.go")), strings.Count(string(methods), "\nfunc (x *"))
	for _, path := range files.Replace {
		_, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		assert.NoError(t, err)
	}
}

func TestMissingAnchorIsNamed(t *testing.T) {
	t.Parallel()
	goroot := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(goroot, "src/runtime"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(goroot, "src/runtime/proc.go"), []byte("package runtime\n"), 0o600))
	_, err := overlay(goroot, t.TempDir())
	require.ErrorContains(t, err, "runtime/proc.go")
	require.ErrorContains(t, err, edits[0].anchor)
}
