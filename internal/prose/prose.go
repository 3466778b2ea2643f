// Package prose checks the words of this repository: comments, documentation and messages. Its test
// runs all rules over the whole repository.
//
// The rules are:
//
//   - columns: comments and Markdown wrap at 100 columns. Tables, code blocks, headings and lines
//     without a space to wrap at may be longer.
//   - words: comments, string literals and Markdown use none of the words and forms in [unwanted].
//     The doc comment of a function whose only result is a bool says what it "reports whether".
//   - opening: no sentence begins with one of the words in [openings].
//   - godoc: every exported name of a package that programs can import has a doc comment that
//     begins with the name.
//   - link: the file and the heading of a relative link in Markdown exist.
//
// The file exceptions.txt lists findings that are accepted, with the reason.
package prose

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const columns, tabWidth = 100, 4

// openings are words that put the object or the condition before the subject.
var openings = regexp.MustCompile(`(?:^|[.:;!?] +)((?:Where|Of|What|Beside|Whether) [^?]*?(?:[.;:?]|$))`)

// Finding is a place that breaks a rule.
type Finding struct {
	Path string // relative to the root of the repository, with slashes
	Line int
	Rule string
	Text string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.Path, f.Line, f.Rule, f.Text)
}

// Check applies all rules to the files below root and returns what it finds, sorted by path.
func Check(root string) ([]Finding, error) {
	c := checker{root: root, headings: map[string]map[string]bool{}}
	err := Walk(root, c.file)
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule))
	})
	return c.findings, err
}

// Walk calls visit for the files below root. It skips the folder public, testdata folders, and
// folders whose name begins with a dot, except .ci and .github. The names that visit gets are
// relative to root and have slashes.
func Walk(root string, visit func(name string) error) error {
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !entry.IsDir() {
			return visit(rel)
		}
		if skipped(rel) {
			return filepath.SkipDir
		}
		return nil
	})
}

func skipped(folder string) bool {
	if folder == "public" { // the site that "make site" builds
		return true
	}
	base := path.Base(folder)
	switch base {
	case "testdata", "node_modules":
		return true
	case ".", ".ci", ".github":
		return false
	}
	return strings.HasPrefix(base, ".")
}

// output matches the comment with the output of an example.
var output = regexp.MustCompile(`(?i)^\s*(unordered )?output:`)

type checker struct {
	root     string
	findings []Finding
	headings map[string]map[string]bool // anchors by the path of a Markdown file
}

func (c *checker) add(name string, line int, rule, text string) {
	c.findings = append(c.findings, Finding{name, line, rule, text})
}

func (c *checker) file(name string) error {
	switch {
	case strings.HasSuffix(name, ".go"):
		return c.goFile(name)
	case strings.HasSuffix(name, ".md"):
		return c.markdownFile(name)
	case name == "Makefile" || strings.HasPrefix(name, ".ci/") || strings.HasSuffix(name, ".lua") || strings.HasSuffix(name, ".js"):
		return c.scriptFile(name)
	}
	return nil
}

func (c *checker) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(c.root, filepath.FromSlash(name)))
	return string(text), err
}

// goFile checks the comments and string literals of a Go file, and the documentation of its
// exported names.
func (c *checker) goFile(name string) error {
	text, err := c.read(name)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	lines := strings.Split(text, "\n")
	for _, group := range file.Comments {
		c.commentGroup(name, fset, lines, group)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				c.words(name, fset.Position(n.Pos()).Line, n.Value)
			}
		case *ast.FuncDecl:
			c.predicate(name, fset.Position(n.Pos()).Line, n.Type, n.Doc)
		case *ast.Field:
			if signature, ok := n.Type.(*ast.FuncType); ok {
				c.predicate(name, fset.Position(n.Pos()).Line, signature, n.Doc)
			}
		}
		return true
	})
	if importable(name, file.Name.Name) {
		for _, decl := range file.Decls {
			c.documented(name, fset, decl)
		}
	}
	return nil
}

func (c *checker) commentGroup(name string, fset *token.FileSet, lines []string, group *ast.CommentGroup) {
	if output.MatchString(group.Text()) {
		return
	}
	var prose strings.Builder
	first := fset.Position(group.Pos()).Line
	for _, comment := range group.List {
		line := fset.Position(comment.Pos()).Line
		for i, text := range strings.Split(comment.Text, "\n") {
			if strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") {
				continue
			}
			body := strings.TrimLeft(text, "/* ")
			if code := strings.HasPrefix(text, "//\t") || strings.HasPrefix(text, "// \t"); code {
				prose.WriteString("\n")
				continue
			}
			prose.WriteString(body + "\n")
			whole := strings.TrimSpace(lines[line+i-1])
			if strings.HasPrefix(whole, "//") || strings.HasPrefix(whole, "/*") || i > 0 {
				c.width(name, line+i, lines[line+i-1])
			}
		}
	}
	c.sentences(name, first, prose.String())
	c.words(name, first, prose.String())
}

// width reports a line that is too long and has a space to wrap at.
func (c *checker) width(name string, line int, text string) {
	wide := utf8.RuneCountInString(text) + (tabWidth-1)*strings.Count(text, "\t")
	if wide <= columns {
		return
	}
	if body := strings.TrimLeft(text, "/*#-> \t"); strings.Contains(body, " ") {
		c.add(name, line, "columns", fmt.Sprintf("%d columns; there must be at most %d", wide, columns))
	}
}

// sentences reports sentences that begin with one of the openings. The text begins at a line.
func (c *checker) sentences(name string, line int, text string) {
	start := line
	for _, paragraph := range strings.Split(text, "\n\n") {
		flat := strings.ReplaceAll(strings.TrimSpace(paragraph), "\n", " ")
		for _, match := range openings.FindAllStringSubmatch(flat, -1) {
			if !strings.HasSuffix(match[1], "?") {
				c.add(name, start, "opening", match[1])
			}
		}
		start += strings.Count(paragraph, "\n") + 2
	}
}

// importable reports whether programs can import the package of a file.
func importable(name, pkg string) bool {
	return pkg != "main" && !strings.HasSuffix(name, "_test.go") && !strings.Contains("/"+name, "/internal/") &&
		!strings.HasPrefix(name, "benchmarks/") && !strings.HasPrefix(name, "examples/")
}

// documented reports exported names of a declaration without a doc comment.
func (c *checker) documented(name string, fset *token.FileSet, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(typeName(d.Recv.List[0].Type))) {
			c.documentedName(name, fset, d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					c.documentedName(name, fset, s.Name, cmp.Or(s.Doc, d.Doc))
				}
			case *ast.ValueSpec:
				for _, id := range s.Names {
					if id.IsExported() && cmp.Or(s.Doc, s.Comment, d.Doc) == nil {
						c.add(name, fset.Position(id.Pos()).Line, "godoc", id.Name+" has no doc comment")
					}
				}
			}
		}
	}
}

func (c *checker) documentedName(name string, fset *token.FileSet, id *ast.Ident, doc *ast.CommentGroup) {
	text := doc.Text()
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	if !strings.HasPrefix(text, id.Name) {
		c.add(name, fset.Position(id.Pos()).Line, "godoc", id.Name+" has no doc comment that begins with its name")
	}
}

// typeName returns the name of a method's type.
func typeName(x ast.Expr) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(x), "*"), "[")
	return name
}

// scriptFile checks the comments of a script. They begin with #, // or --.
func (c *checker) scriptFile(name string) error {
	text, err := c.read(name)
	if err != nil {
		return err
	}
	c.words(name, 1, text)
	for i, line := range strings.Split(text, "\n") {
		body := strings.TrimSpace(line)
		for _, mark := range []string{"# ", "// ", "-- "} {
			if strings.HasPrefix(body, mark) {
				c.width(name, i+1, line)
			}
		}
	}
	return nil
}

var (
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// mark matches the name of a figure, which readers do not see.
	mark     = regexp.MustCompile(`<!-- (figure: .*?|/) -->`)
	anchor   = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// markdownFile checks the paragraphs and the links of a Markdown file.
func (c *checker) markdownFile(name string) error {
	text, err := c.read(name)
	if err != nil {
		return err
	}
	var prose strings.Builder
	for i, line := range proseLines(text) {
		prose.WriteString(line + "\n")
		if line == "" {
			continue
		}
		if !strings.HasPrefix(line, "![") && !strings.HasPrefix(line, "[![") {
			c.width(name, i+1, line)
		}
	}
	c.sentences(name, 1, prose.String())
	c.words(name, 1, strings.Join(outsideCode(text), "\n"))
	for i, line := range strings.Split(text, "\n") {
		for _, match := range link.FindAllStringSubmatch(line, -1) {
			if err := c.link(name, i+1, match[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// outsideCode returns the lines of a Markdown text. Lines of code blocks are empty.
func outsideCode(text string) []string {
	lines := strings.Split(text, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			fenced = !fenced
		}
		if fence || fenced {
			lines[i] = ""
		}
	}
	return lines
}

// proseLines is like outsideCode, and lines of tables and headings are empty as well. Names of
// figures are left out.
func proseLines(text string) []string {
	lines := outsideCode(text)
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<") {
			lines[i] = ""
		}
		lines[i] = mark.ReplaceAllString(lines[i], "")
	}
	return lines
}

// link reports a relative link whose file or heading does not exist.
func (c *checker) link(name string, line int, target string) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	file, heading, _ := strings.Cut(target, "#")
	to := name
	if file != "" {
		to = path.Join(path.Dir(name), file)
	}
	if _, err := os.Stat(filepath.Join(c.root, filepath.FromSlash(to))); err != nil {
		c.add(name, line, "link", target+" does not exist")
		return nil
	}
	if heading == "" || !strings.HasSuffix(to, ".md") {
		return nil
	}
	if c.headings[to] == nil {
		text, err := c.read(to)
		if err != nil {
			return err
		}
		c.headings[to] = anchors(text)
	}
	if !c.headings[to][heading] {
		c.add(name, line, "link", target+" names no heading")
	}
	return nil
}

// anchors returns the anchors of a Markdown text as hosts of repositories derive them from the
// headings: lower case, without punctuation, spaces as hyphens, a number after a repeated one.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, line := range outsideCode(text) {
		for _, match := range anchor.FindAllStringSubmatch(line, -1) {
			found[match[1]] = true
		}
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			slug := slugOf(linkText.ReplaceAllString(title, "$1"))
			for n, base := 1, slug; found[slug]; n++ {
				slug = fmt.Sprintf("%s-%d", base, n)
			}
			found[slug] = true
		}
	}
	return found
}

func slugOf(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(title)) {
		switch {
		case r == ' ':
			b.WriteRune('-')
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Exceptions reads the accepted findings: a line each, of path, rule and text separated by tabs,
// and the reason after another tab. Lines that begin with # are comments.
func Exceptions(file string) (map[Finding]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	accepted := map[Finding]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || fields[3] == "" {
			return nil, fmt.Errorf("prose: %s:%d: %q; a line must be path, rule, text and reason, separated by tabs", file, i+1, line)
		}
		accepted[Finding{Path: fields[0], Rule: fields[1], Text: fields[2]}] = fields[3]
	}
	return accepted, nil
}
