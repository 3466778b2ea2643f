package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/docsnippet"
	"github.com/timingwheel-go/timingwheel/internal/exportdata"
)

// packages are the imports that fragments of code may use without importing them.
var packages = []string{
	"bytes", "context", "errors", "fmt", "log", "log/slog", "maps", "math/rand/v2", "net", "net/http", "net/http/pprof",
	"os", "os/signal", "runtime", "slices", "strings", "sync", "sync/atomic", "testing", "testing/synctest", "time",

	"github.com/stretchr/testify/assert",
	"github.com/stretchr/testify/require",

	module, module + "/durable", module + "/durable/durabledebug", module + "/durable/memstore",
	module + "/durable/pebblestore", module + "/durable/typed", module + "/callwatch", module + "/keyed", module + "/schedule",
	module + "/wheeldebug", module + "/wheelexpvar", module + "/wheelnet",
}

const module = "github.com/timingwheel-go/timingwheel"

// common are the declarations that every fragment can use.
const common = `
var (
	tw  *timingwheel.TimingWheel
	ctx context.Context
	err error
	q   *durable.Queue
)
`

// shownFrom are the Go files from which a page shows parts. Such a part needs the rest of its file
// to compile, or a package that takes long to compile.
var shownFrom = map[string][]string{
	"docs/durable.md":          {"durable/redisstore/example_test.go"},
	"docs/durable-postgres.md": {"durable/pgstore/example_test.go"},
	"docs/operating.md":        {"wheelprometheus/example_test.go"},
	"docs/migrating.md":        {"examples/migrating/recipes_test.go"},
	"docs/schedules.md":        {"examples/cron/main.go"},
	"docs/net.md":              {"wheelnet/adopters/*.go", "example_pool_test.go"},
	"docs/testing.md":          {"examples/testing/payment/*.go", "clocks/*/example_test.go"},
}

// snippet is a block of Go code in a Markdown file.
type snippet struct {
	path string
	line int
	with string // declarations for it, from an HTML comment above the block: <!-- with: ... -->
	code string
}

var with = regexp.MustCompile(`(?s).*<!-- with:(.*?)-->\s*$`)

// snippetsOf returns the blocks of Go code in a Markdown text.
func snippetsOf(path, text string) (found []snippet) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		indent, ok := strings.CutSuffix(lines[i], "```go")
		if !ok || strings.TrimSpace(indent) != "" {
			continue
		}
		s := snippet{path: path, line: i + 2}
		if m := with.FindStringSubmatch(strings.Join(lines[:i], "\n")); m != nil {
			s.with = m[1]
		}
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			s.code += strings.TrimPrefix(lines[i], indent) + "\n"
		}
		found = append(found, s)
	}
	return found
}

// importDeclarations matches the imports at the beginning of a block.
var importDeclarations = regexp.MustCompile(`^(import \([^)]*\)\s*|import .*\n\s*)*`)

// source returns the files of a package with the snippet. A snippet is a whole file, declarations
// or statements.
func (s snippet) source() (files []string, err error) {
	if strings.HasPrefix(s.code, "package ") || strings.HasPrefix(s.code, "//go:build") {
		return []string{s.code}, nil
	}
	declarations := "package p\n" + s.code
	if _, err := parser.ParseFile(token.NewFileSet(), "", declarations, 0); err == nil {
		return []string{"package p\n" + common + s.with, declarations}, nil
	}
	head := importDeclarations.FindString(s.code)
	statements := "package p\n" + head + "func _() {\n" + strings.TrimPrefix(s.code, head) + "}\n"
	_, err = parser.ParseFile(token.NewFileSet(), "", statements, 0)
	return []string{"package p\n" + common + s.with, statements}, err
}

// The code in README.md and docs compiles. Fragments may leave variables unused.
func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	compiled, err := newCompiler()
	require.NoError(t, err)
	names := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range found {
			rel, err := filepath.Rel(root, name)
			require.NoError(t, err)
			names = append(names, filepath.ToSlash(rel))
		}
	}
	count := 0
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		for _, s := range snippetsOf(name, string(text)) {
			count++
			if s.isShownFrom(t, shownFrom[name]) {
				continue
			}
			for _, problem := range compiled.check(s) {
				t.Errorf("%s:%d: %s", s.path, s.line, problem)
			}
		}
	}
	require.Positive(t, count)
}

// isShownFrom reports whether a file that matches one of the patterns has the code of the snippet.
func (s snippet) isShownFrom(t *testing.T, patterns []string) bool {
	var files []string
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, names, pattern)
		for _, name := range names {
			code, err := os.ReadFile(name)
			require.NoError(t, err)
			files = append(files, string(code))
		}
	}
	return docsnippet.InOneOf(files, s.code)
}

// compiler checks snippets.
type compiler struct {
	names map[string]string // the path of a package by its name

	mu       sync.Mutex // held by check
	fset     *token.FileSet
	importer types.Importer
}

// newCompiler compiles the packages, once for all tests.
var newCompiler = sync.OnceValues(func() (*compiler, error) {
	found, err := exportdata.List(root, packages...)
	if err != nil {
		return nil, err
	}
	c := &compiler{names: map[string]string{}, fset: token.NewFileSet()}
	c.importer = exportdata.Importer(c.fset, found)
	for _, p := range found {
		if c.names[p.Name] == "" {
			c.names[p.Name] = p.ImportPath
		}
	}
	return c, nil
})

// check compiles a snippet and returns its errors.
func (c *compiler) check(s snippet) (problems []string) {
	sources, err := s.source()
	if err != nil {
		return []string{err.Error()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var files []*ast.File
	for i, source := range sources {
		if len(sources) > 1 {
			source = strings.Replace(source, "package p\n", "package p\n"+c.imports(source), 1)
		}
		file, err := parser.ParseFile(c.fset, string(rune('a'+i))+".go", source, 0)
		if err != nil {
			return []string{err.Error()}
		}
		files = append(files, file)
	}
	config := types.Config{
		Importer: c.importer,
		Error: func(err error) {
			if text := err.Error(); !strings.Contains(text, "declared and not used") && !strings.Contains(text, "is not used") {
				problems = append(problems, text)
			}
		},
	}
	_, _ = config.Check("p", c.fset, files, nil) //nolint:errcheck // Error has them all
	return problems
}

var (
	qualifier   = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)
	lineComment = regexp.MustCompile(`(?m)//.*$`)
)

// imports returns the declarations of the imports that a fragment needs.
func (c *compiler) imports(source string) string {
	seen, text := map[string]bool{}, ""
	source = lineComment.ReplaceAllString(source, "")
	for _, m := range qualifier.FindAllStringSubmatch(source, -1) {
		if path := c.names[m[1]]; path != "" && !seen[m[1]] && !strings.Contains(source, `"`+path+`"`) {
			seen[m[1]] = true
			text += "import " + m[1] + ` "` + path + "\"\n"
		}
	}
	return text
}

func TestSnippetWithFaultDoesNotCompile(t *testing.T) {
	t.Parallel()
	compiled, err := newCompiler()
	require.NoError(t, err)
	for _, test := range []struct{ text, want string }{
		{"```go\ntw.AfterFunc(time.Second, f)\n```\n", "undefined: f"},
		{"<!-- with: func f() {} -->\n```go\ntw.AfterFunc(time.Second, f)\n```\n", ""},
		{"- item\n\n  ```go\n  func g() error { return http.ErrServerClosed }\n  ```\n", ""},
		{"```go\nx := 1\n```\n", ""},
		{"```go\nimport \"log\"\n\nfunc g() { log.Println(1) }\n```\n", ""},
		{"```go\nimport \"log\"\n\nlog.Println(1) // or fmt.Println\n```\n", ""},
		{"```go\npackage main\n\nimport \"gopkg.in/yaml.v3\"\n\nfunc main() { yaml.Marshal(1) }\n```\n", "is not among those"},
		{"```go\npackage main\n\nfunc main() { undefined() }\n```\n", "undefined: undefined"},
		{"```go\nif {\n```\n", "missing condition"},
	} {
		snippets := snippetsOf("a.md", test.text)
		require.Len(t, snippets, 1)
		problems := strings.Join(compiled.check(snippets[0]), "\n")
		if test.want == "" {
			assert.Empty(t, problems)
		} else {
			assert.Contains(t, problems, test.want)
		}
	}
}
