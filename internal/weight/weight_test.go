package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loaded writes files below a new folder and loads them.
func loaded(t *testing.T, files map[string]string) repository {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		name = filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	r, err := load(folder)
	require.NoError(t, err)
	return r
}

// members returns the sorted names of the fields and methods of a type of the root package.
func members(t *testing.T, source string, name string) (fields, methods []string) {
	t.Helper()
	r := loaded(t, map[string]string{
		"go.mod":      "module example.com/a\n",
		"a.go":        "package a\n\n" + source,
		"inner/in.go": "package inner\n\ntype In[T any] struct{ x, y T }\n\nfunc (*In[T]) Of() {}\n",
	})
	p := r["example.com/a"]
	fields, set := r.members(p, p.types[name], true)
	return slices.Sorted(slices.Values(fields)), slices.Sorted(maps.Keys(set))
}

func TestEmbeddedTypesCountWithTheirMembers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, source, fields, methods string }{
		{"plain", "type T struct { a, b int; _ [8]byte; f func() }\n\nfunc (T) M() {}\n\nfunc (t *T) n() {}\n", "a b f", "M n"},
		{"embedded", "type T struct { a int; b; *C }\n\ntype b struct { c int }\n\nfunc (b) M() {}\n\ntype C struct { d, e int }\n", "a c d e", "M"},
		{"method of both", "type T struct{ b }\n\nfunc (T) M() {}\n\ntype b struct{}\n\nfunc (b) M() {}\n", "", "M"},
		{"twice", "type T struct{ b }\n\ntype b struct{ c }\n\ntype c struct { d int }\n\nfunc (*c) M() {}\n", "d", "M"},
		{"generic", "type T[K comparable, V any] struct { k K; b[V] }\n\nfunc (T[K, V]) M() {}\n\ntype b[V any] struct { v V }\n\nfunc (*b[V]) N() {}\n",
			"k v", "M N"},
		{"other package", "import \"example.com/a/inner\"\n\ntype T struct { inner.In[int] }\n", "x y", "Of"},
		{"renamed package", "import other \"example.com/a/inner\"\n\ntype T struct { *other.In[int] }\n", "x y", "Of"},
		{"outside the repository", "import \"sync\"\n\ntype T struct { sync.Mutex; error }\n", "Mutex error", ""},
		{"interface", "type T interface { M(); N(); I }\n\ntype I interface { O(); error }\n", "", "M N O"},
		{"embedded interface", "type T struct { a int; I }\n\ntype I interface { M() }\n", "a", "M"},
		{"not a struct", "type T int\n\nfunc (T) M() {}\n", "", "M"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fields, methods := members(t, test.source, "T")
			assert.Equal(t, test.fields, strings.Join(fields, " "))
			assert.Equal(t, test.methods, strings.Join(methods, " "))
		})
	}
}

func TestCountsAreThoseOfTheModuleOfAFile(t *testing.T) {
	t.Parallel()
	fields := "struct { " + strings.Repeat("f int;", mostFields) + " last int }\n"
	r := loaded(t, map[string]string{
		"go.mod": "module example.com/a\n\ngo 1.25\n",
		"a.go": "package a\n\nimport _ \"example.com/a/internal/needed\"\n\nconst X, y = 1, 2\n\ntype T struct { A, b int; c }\n\n" +
			"type c struct { D int }\n\nfunc (c) E() {}\n\nfunc (T) F() {}\n\nfunc G() { const Local = 1 }\n\ntype I interface { H() }\n",
		"a_windows.go":             "package a\n\nfunc G() {}\n",
		"a_test.go":                "package a\n\nfunc TestT() {}\n",
		"testdata/a.go":            "package not go",
		"internal/needed/n.go":     "package needed\n\nfunc Exported() {}\n\ntype Stats " + fields,
		"internal/tool/main.go":    "package main\n\nfunc main() {}\n\ntype large " + fields,
		"b/go.mod":                 "module example.com/a/b\n",
		"b/c/c.go":                 "package c\n\nvar V int\n",
		"b/c/internal/d/d_test.go": "package d\n",
	})
	counts := r.count(map[string]int{"a.md": 3, "b.md": 4})
	assert.Equal(t, map[string]int{
		"root files": 2, "root lines": 17 + 3 + 5, "root tests": 3,
		"root exported":            9, // X, T, T.A, T.D, T.E, T.F, G, I, I.H
		"module . files":           3,
		"module . lines":           17 + 3 + 5,
		"module . tests":           3,
		"module . exported":        9,
		"module b files":           1,
		"module b lines":           3,
		"module b tests":           1,
		"module b exported":        1,
		"tool internal/tool files": 1, "tool internal/tool lines": 5, "tool internal/tool tests": 0, "tool internal/tool exported": 0,
		"type . large fields": 16,
		"markdown words":      7,
	}, counts)
}

func TestLimitsOnlyGoDown(t *testing.T) {
	t.Parallel()
	type m = map[string]int
	for _, test := range []struct {
		name                   string
		counts, limits, lowest m
		next                   m
		fault, advice          string
	}{
		{"equal", m{"a": 2}, m{"a": 2}, m{"a": 2}, m{"a": 2}, "", ""},
		{"above the limit", m{"a": 3}, m{"a": 2}, nil, m{"a": 2}, "a: 3; the limit is 2", ""},
		{"below the limit", m{"a": 1}, m{"a": 2}, m{"a": 2}, m{"a": 1}, "", "a: the limit 2 can go down to 1 by -update"},
		{"raised limit", m{"a": 3}, m{"a": 3}, m{"a": 2}, m{"a": 2}, "a: the limit 3 was 2; limits only go down", ""},
		{"removed limit", m{"a": 3}, m{"b": 1}, m{"a": 2}, m{"a": 2}, "a: 3 has no limit; set it by -update", ""},
		{"new module", m{"a": 3, "b": 1}, m{"b": 1}, m{"b": 1}, m{"a": 3, "b": 1}, "a: 3 has no limit; set it by -update", ""},
		{"first type", m{"type . T": 16}, nil, nil, m{"type . T": 16}, "type . T: 16 has no limit; set it by -update", ""},
		{"new type", m{"type . T": 16}, m{"a": 1}, nil, m{}, "type . T: 16; a new type may have 15 fields and 20 methods", ""},
		{"new type with a limit", m{"type . T": 16}, m{"type . T": 16}, m{"a": 1}, m{}, "type . T: 16; a new type may have 15 fields and 20 methods", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			next, faults, advice := compare(test.counts, test.limits, test.lowest)
			assert.Equal(t, test.next, next)
			assert.Equal(t, test.fault, strings.Join(faults, "\n"))
			assert.Equal(t, test.advice, strings.Join(advice, "\n"))
		})
	}
}

// The check compares the file with all commits, not only with the last one.
func TestRaisedLimitFailsAfterItWasCommitted(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Dir(limitsFile), 0o755))
	require.NoError(t, checkLimits(map[string]int{"module . lines": 5, "module . tests": 7, "module a files": 1}, true))
	written, err := os.ReadFile(limitsFile)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"module . lines": 5, "module a files": 1}, parse(written))

	git := func(args ...string) {
		out, err := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q")
	commit := func() {
		git("add", ".")
		git("commit", "-q", "-m", "limits")
	}
	commit()
	require.NoError(t, checkLimits(map[string]int{"module . lines": 4}, true))
	commit()
	require.NoError(t, checkLimits(map[string]int{"module . lines": 4}, false))
	require.NoError(t, os.WriteFile(limitsFile, []byte("module . lines 6\n"), 0o644))
	require.Error(t, checkLimits(map[string]int{"module . lines": 4}, false))
	commit()
	require.Error(t, checkLimits(map[string]int{"module . lines": 4}, false))
	require.Error(t, checkLimits(map[string]int{"module . lines": 5}, true), "-update takes the limit back")
	require.NoError(t, checkLimits(map[string]int{"module . lines": 4}, false))
}

// The compiler would instantiate generic parts of the engine once more in each package that imports
// the library, if a type, a signature or an inlined body of the API needed them.
func TestImportersDoNotCompileTheEngine(t *testing.T) {
	t.Parallel()
	archive, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", "./testdata/importer").Output()
	require.NoError(t, err)
	symbols, err := exec.Command("go", "tool", "nm", strings.TrimSpace(string(archive))).Output()
	require.NoError(t, err)
	const lib = "github.com/timingwheel-go/timingwheel."
	require.Contains(t, string(symbols), lib+"(*TimingWheel).AfterFunc")
	require.NotRegexp(t, ` [Tt] .*timingwheel\.(\(\*)?(engine|shard|armAfter|armAndUnlock|payloadsOf|batch|job)\[`, string(symbols))
}
