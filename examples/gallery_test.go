package examples

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sections returns the sections of the gallery by heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	found := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^### `).Split(string(text), -1)[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		found[heading] = body
	}
	return found
}

// folders returns the folders with Go files, except internal ones, and whether each is a program.
func folders(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "internal" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || filepath.Dir(name) == ".":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly)
		if err == nil {
			found[filepath.ToSlash(filepath.Dir(name))] = file.Name.Name == "main"
		}
		return err
	}))
	return found
}

// console returns the lines of the first console block of a section.
func console(section string) []string {
	_, block, found := strings.Cut(section, "```console\n")
	if !found {
		return nil
	}
	block, _, _ = strings.Cut(block, "\n```")
	return strings.Split(block, "\n")
}

// README.md has a section for each example, with a link, the command and its output.
func TestGalleryHasEveryExample(t *testing.T) {
	t.Parallel()
	gallery := sections(t)
	for folder, program := range folders(t) {
		section, ok := gallery[folder]
		if !assert.True(t, ok, "README.md has no section %s", folder) {
			continue
		}
		assert.Contains(t, section, "]("+folder, "link to the example %s", folder)
		command := `^\$ go run ./examples/` + folder + `( |$)`
		if !program {
			command = `^\$ go test (-v )?./examples/` + folder + "$"
		}
		lines := console(section)
		if assert.NotEmpty(t, lines, "console block of %s", folder) {
			assert.Regexp(t, command, lines[0])
			assert.True(t, slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "$ ") }), "output of %s", folder)
		}
		delete(gallery, folder)
	}
	assert.Empty(t, gallery, "sections without an example")
}

// The tests of these examples pin the whole output. The gallery has the same lines.
func TestGalleryHasTheOutputOfDeterministicExamples(t *testing.T) {
	t.Parallel()
	for folder, section := range sections(t) {
		switch folder {
		case "afterfunc", "eventloop":
		default:
			continue
		}
		pinned, err := os.ReadFile(filepath.Join(folder, "main_test.go"))
		require.NoError(t, err)
		lines := console(section)
		require.Greater(t, len(lines), 1, folder)
		for _, line := range lines[1:] {
			assert.Contains(t, string(pinned), `"`+line+`\n"`, folder)
		}
	}
}

// The tests of a program call its main, the function that main passes to program.Main, or run.
func TestEveryProgramIsRunByATest(t *testing.T) {
	t.Parallel()
	programs := 0
	for folder, program := range folders(t) {
		if !program {
			continue
		}
		programs++
		source, err := os.ReadFile(filepath.Join(folder, "main.go"))
		require.NoError(t, err)
		names := "main|run"
		if passed := regexp.MustCompile(`program\.Main\((\w+)\)`).FindSubmatch(source); passed != nil {
			names += "|" + string(passed[1])
		}
		called := regexp.MustCompile(`(?m)(^|[^.\w])(` + names + `)\(`)
		tests, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(tests, func(name string) bool {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			return called.Match(text)
		}), "no test runs %s", folder)
	}
	require.Positive(t, programs)
}
