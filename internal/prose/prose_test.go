package prose

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// write creates files below a new folder and returns the folder.
func write(t *testing.T, files map[string]string) string {
	folder := t.TempDir()
	for name, text := range files {
		name = filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return folder
}

func TestEachRuleFindsItsFault(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("word ", 21)
	who, advice := "who"+"ever", "; write the name of the subject"
	for _, test := range []struct{ name, file, text, want string }{
		{"wide comment", "a.go", "package a\n\n// " + wide + "\n", "a.go:3: columns: 108 columns; there must be at most 100"},
		{"tabs count", "a.go", "package a\n\nfunc f() {\n\t// " + wide[:93] + "\n\t// " + wide[:94] + "x\n}\n", "a.go:5: columns: 102 columns; there must be at most 100"},
		{"wide paragraph", "a.md", "a\n\n" + wide + "\n", "a.md:3: columns: 105 columns; there must be at most 100"},
		{"wide comment of a script", ".ci/release", "#!/bin/sh\n# " + wide + "\n", ".ci/release:2: columns: 107 columns; there must be at most 100"},
		{"word in a comment", "a.go", "package a // " + who + "\n", "a.go:1: words: " + who + advice},
		{"word in a string", "a.go", "package a\n\nvar x = \"" + who + " waits\"\n", "a.go:3: words: " + who + advice},
		{"word in Markdown", "a.md", "\n" + who + " waits\n", "a.md:2: words: " + who + advice},
		{"opening of a comment", "a.go", "package a\n\n// Where it waits, it waits.\n", "a.go:3: opening: Where it waits, it waits."},
		{"opening of a later sentence", "a.md", "It waits. What is\ndue runs.\n", "a.md:1: opening: What is due runs."},
		{"no doc comment", "a.go", "package a\n\nfunc F() {}\n", "a.go:3: godoc: F has no doc comment that begins with its name"},
		{"doc comment of another name", "a.go", "package a\n\n// G returns.\nfunc F() {}\n", "a.go:4: godoc: F has no doc comment that begins with its name"},
		{"method", "a.go", "package a\n\n// T is a type.\ntype T[K any] struct{}\n\nfunc (t *T[K]) M() {}\n", "a.go:6: godoc: M has no doc comment that begins with its name"},
		{"constant", "a.go", "package a\n\nconst C = 1\n", "a.go:3: godoc: C has no doc comment"},
		{"missing file", "a.md", "[b](b.md)\n", "a.md:1: link: b.md does not exist"},
		{"missing heading", "a.md", "# A\n\n[b](#b)\n", "a.md:3: link: #b names no heading"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			findings, err := Check(write(t, map[string]string{test.file: test.text}))
			require.NoError(t, err)
			require.Len(t, findings, 1)
			assert.Equal(t, test.want, findings[0].String())
		})
	}
}

func TestAcceptedTextsHaveNoFindings(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("word ", 30)
	folder := write(t, map[string]string{
		"a.go": "// Package a has words.\npackage a\n\n//go:generate " + wide + "\n\n// A T is a type.\ntype T struct{}\n\n// M is a method.\nfunc (T) M() {}\n\n" +
			"type hidden struct{}\n\nfunc (hidden) M() {}\n\nvar x = 1 // " + wide + "\n\n// Sizes.\nconst (\n\tA = 1 // a size\n\tB = 2\n)\n\n" +
			"//\t" + wide + "\n\n// What does it do?\n\n// Output:\n// " + wide + "\n",
		"internal/b.go":     "package b\n\nfunc F() {}\n",
		"main.go":           "package main\n\nfunc F() {}\n",
		"testdata/a.md":     wide,
		"public/a.md":       wide,
		"node_modules/a.md": wide,
		".git/a.md":         wide,
		"a.md": "# Ends: `x`, the end\n\n## Again\n\n## Again\n\n<a id=\"g1\"></a>\n\n| " + wide + " |\n\n```go\n" + wide + "\n```\n\n" +
			"[a](#ends-x-the-end) [b](#again-1) [c](docs/b.md#b) [d](#g1) [e](https://example.com)\n",
		"docs/b.md": "# B\n\n[up](../a.md)\nhttps://example.com/" + strings.Repeat("x", 100) + "\n",
	})
	findings, err := Check(folder)
	require.NoError(t, err)
	assert.Empty(t, findings)
}

func TestExceptionWithoutReasonIsAnError(t *testing.T) {
	t.Parallel()
	folder := write(t, map[string]string{"x": "a.md\twords\tw\tis quoted\n# comment\n", "y": "a.md\twords\tw\n"})
	accepted, err := Exceptions(filepath.Join(folder, "x"))
	require.NoError(t, err)
	assert.Equal(t, map[Finding]string{{Path: "a.md", Rule: "words", Text: "w"}: "is quoted"}, accepted)
	_, err = Exceptions(filepath.Join(folder, "y"))
	assert.ErrorContains(t, err, "path, rule, text and reason")
	_, err = Exceptions(filepath.Join(folder, "z"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestBadgeNamesTheGoVersionOfAllModules(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	goMod := version.FindStringSubmatch(read(t, "go.mod"))
	require.NotNil(t, goMod)
	assert.Contains(t, read(t, "docs/badges/go.svg"), ">"+goMod[1]+"+<")
	assert.Contains(t, read(t, "README.md"), "Go "+goMod[1]+" or later")
	work := read(t, "go.work")
	assert.Equal(t, goMod[1], version.FindStringSubmatch(work)[1])
	for _, module := range regexp.MustCompile(`(?m)^\t\./(.+)$`).FindAllStringSubmatch(work, -1) {
		assert.Equal(t, goMod[1], version.FindStringSubmatch(read(t, module[1]+"/go.mod"))[1], module[1])
	}
}

// A reader decides in a minute.
func TestREADMEIsShort(t *testing.T) {
	t.Parallel()
	words, err := Words(root)
	require.NoError(t, err)
	assert.LessOrEqual(t, words["README.md"], 850)
}
