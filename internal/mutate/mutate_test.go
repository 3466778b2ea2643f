package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// write writes a file of a module into dir.
func write(t *testing.T, dir, name, source string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600))
}

// newModule returns the folder of a module whose test misses one of its mutants.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module tiny\n\ngo 1.25\n")
	write(t, dir, "tiny.go", "package tiny\n\nfunc larger(a, b int) bool { return a > b }\n")
	write(t, dir, "tiny_test.go", `package tiny

import "testing"

func TestLarger(t *testing.T) {
	if !larger(2, 1) || larger(1, 2) {
		t.Fatal("wrong")
	}
}
`)
	return dir
}

func TestReportNamesTheSurvivor(t *testing.T) {
	t.Parallel()
	dir := newModule(t)
	out := filepath.Join(t.TempDir(), "results")
	write(t, dir, "other_test.go", "package tiny\n\nfunc init() { panic(1) }\n")
	require.ErrorContains(t, run(io.Discard, []string{"-C", dir, "-o", out}), "the tests fail without a mutant: panic: 1")
	require.NoError(t, os.Remove(filepath.Join(dir, "other_test.go")))
	var first, second strings.Builder
	require.NoError(t, run(&first, []string{"-C", dir, "-o", out}))
	assert.Equal(t, `file     caught       in both, old  in both, new
tiny.go  1 of 2, 50%  -             -
all      1 of 2, 50%  -             -

survived: tiny.go larger boundary 1 (tiny.go:3)
	func larger(a, b int) bool { return a > b } => func larger(a, b int) bool { return a >= b }
`, first.String())

	// The results are known now, so a test that no longer builds does not change them.
	write(t, dir, "tiny_test.go", "package tiny_test\n\nvar x = 1 +\n")
	require.NoError(t, run(&second, []string{"-C", dir, "-o", out, "-old", out}))
	assert.Contains(t, second.String(), "tiny.go  1 of 2, 50%  1 of 2, 50%   1 of 2, 50%\n")
}

func TestMutantsOfEachOperator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.go", `package a

const size = 8

func (x *T[P]) f(y int) (int, bool) {
	if x.done {
		x.n = y
		x.g()
	}
	for y < 1 || y == x.n {
		y := 2
	}
	return 0, true
}

func (x *T[P]) verify() bool { return x.n > 0 }
`)
	all, err := enumerate(dir, "a.go")
	require.NoError(t, err)
	var got []string
	for _, m := range all {
		got = append(got, strings.TrimPrefix(m.key, "a.go ")+": "+m.diff(dir))
	}
	assert.Equal(t, []string{
		"size plus 1: const size = 8 => const size = (8 + 1)",
		"size minus 1: const size = 8 => const size = (8 - 1)",
		"T.f negate 1: if x.done { => if !(x.done) {",
		"T.f drop 1: x.n = y => ",
		"T.f drop 2: x.g() => ",
		"T.f negate 2: for y < 1 || y == x.n { => for !(y < 1 || y == x.n) {",
		"T.f boundary 1: for y < 1 || y == x.n { => for y <= 1 || y == x.n {",
		"T.f plus 1: for y < 1 || y == x.n { => for y < (1 + 1) || y == x.n {",
		"T.f minus 1: for y < 1 || y == x.n { => for y < (1 - 1) || y == x.n {",
		"T.f logic 1: for y < 1 || y == x.n { => for y < 1 && y == x.n {",
		"T.f equal 1: for y < 1 || y == x.n { => for y < 1 || y != x.n {",
		"T.f plus 2: y := 2 => y := (2 + 1)",
		"T.f minus 2: y := 2 => y := (2 - 1)",
		"T.f plus 3: return 0, true => return (0 + 1), true",
		"T.f minus 3: return 0, true => return (0 - 1), true",
		"T.f return 1: return 0, true => return 0, !(true)",
	}, got)
	few := sample(all, 5, 1)
	require.Len(t, few, 5)
	assert.Subset(t, all, few)
	assert.Equal(t, few, sample(all, 5, 1))
}

// An entry for a mutant that no longer exists is removed with the code that it was about.
func TestEquivalentMutantsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	for key := range reasons(equivalents) {
		file, _, _ := strings.Cut(key, " ")
		all, err := enumerate(root, file)
		require.NoError(t, err)
		var keys []string
		for _, m := range all {
			keys = append(keys, m.key)
		}
		assert.Contains(t, keys, key)
	}
}
