package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/timingwheel-go/timingwheel/internal/prose"
)

const mostFields, mostMethods = 15, 20

// repository has the packages by import path.
type repository map[string]*pkg

// pkg is a package without its tests.
type pkg struct {
	name, folder, module string // module is a folder
	files, lines, tests  int
	imports              []string
	types                map[string]*typ
	names                map[string]bool // functions, constants and variables
}

type typ struct {
	expr    ast.Expr
	imports map[string]string // paths of packages by their names in the file of the type
	methods map[string]bool
}

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)`)

// load reads the Go files below root.
func load(root string) (repository, error) {
	modules, folders := map[string]string{}, map[string]*pkg{}
	err := prose.Walk(root, func(name string) error {
		isModule := path.Base(name) == "go.mod"
		if !isModule && path.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		if isModule {
			modules[folder] = string(moduleLine.FindSubmatch(text)[1])
			return nil
		}
		if folders[folder] == nil {
			folders[folder] = &pkg{folder: folder, types: map[string]*typ{}, names: map[string]bool{}}
		}
		return folders[folder].add(name, text)
	})
	r := repository{}
	for folder, p := range folders {
		p.module = folder
		for modules[p.module] == "" && p.module != "." {
			p.module = path.Dir(p.module)
		}
		r[path.Join(modules[p.module], strings.TrimPrefix(folder, p.module))] = p
		p.module = cmp.Or(map[string]string{ // the embedded stores have one limit, their socket another, and pgstore brought the rules that stores share
			"durable/memstore": "durable/pebblestore", "durable/internal/local": "durable/pebblestore", "durable/internal/transition": "durable/pgstore", "durable/internal/remote": folder,
		}[folder], p.module)
	}
	return r, err
}

// add adds a file.
func (p *pkg) add(name string, text []byte) error {
	lines := bytes.Count(text, []byte("\n"))
	if strings.HasSuffix(name, "_test.go") {
		p.tests += lines
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.name = file.Name.Name
	p.files++
	p.lines += lines
	imports := map[string]string{}
	for _, i := range file.Imports {
		from := strings.Trim(i.Path.Value, `"`)
		p.imports = append(p.imports, from)
		imports[path.Base(from)] = from
		if i.Name != nil {
			imports[i.Name.Name] = from
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil {
				p.names[n.Name.Name] = true
			} else {
				_, receiver := named(n.Recv.List[0].Type)
				p.typ(receiver).methods[n.Name.Name] = true
			}
			return false
		case *ast.TypeSpec:
			t := p.typ(n.Name.Name)
			t.expr, t.imports = n.Type, imports
		case *ast.ValueSpec:
			for _, id := range n.Names {
				p.names[id.Name] = true
			}
			return false
		}
		return true
	})
	return nil
}

func (p *pkg) typ(name string) *typ {
	if p.types[name] == nil {
		p.types[name] = &typ{methods: map[string]bool{}}
	}
	return p.types[name]
}

// named returns the package name and the name of a type, which may be a pointer or an instance.
func named(x ast.Expr) (qualifier, name string) {
	text, _, _ := strings.Cut(strings.TrimLeft(types.ExprString(x), "*"), "[")
	dot := strings.LastIndex(text, ".")
	return text[:max(dot, 0)], text[dot+1:]
}

// members returns the fields and the methods of a type, with the members of the unexported types of
// this repository that it embeds, or of all types that it embeds. Any other embedded type is one
// field.
func (r repository) members(p *pkg, t *typ, all bool) (fields []string, methods map[string]bool) {
	methods = maps.Clone(t.methods)
	list := &ast.FieldList{}
	if x, ok := t.expr.(*ast.StructType); ok {
		list = x.Fields
	}
	x, isInterface := t.expr.(*ast.InterfaceType)
	if isInterface {
		list = x.Methods
	}
	for _, f := range list.List {
		for _, id := range f.Names {
			if isInterface {
				methods[id.Name] = true
			} else if id.Name != "_" { // padding
				fields = append(fields, id.Name)
			}
		}
		if f.Names != nil {
			continue
		}
		qualifier, name := named(f.Type)
		from := p
		if qualifier != "" {
			from = r[t.imports[qualifier]] // nil if it is not of this repository
		}
		if from != nil && from.types[name] != nil && (all || !ast.IsExported(name)) {
			more, promoted := r.members(from, from.types[name], all)
			fields = append(fields, more...)
			maps.Copy(methods, promoted)
		} else if !isInterface {
			fields = append(fields, name)
		}
	}
	return fields, methods
}

func (p *pkg) internal() bool { return strings.Contains("/"+p.folder+"/", "/internal/") }

// exported returns the number of exported names of a package that programs can import.
func (r repository) exported(p *pkg) int {
	if p.name == "main" || p.internal() {
		return 0
	}
	names := slices.Collect(maps.Keys(p.names))
	for name, t := range p.types {
		if ast.IsExported(name) {
			fields, methods := r.members(p, t, false)
			names = slices.AppendSeq(append(append(names, name), fields...), maps.Keys(methods))
		}
	}
	return len(slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) }))
}

// needs returns the lines of p and of the packages of its module that it needs and that are not
// done.
func (r repository) needs(p *pkg, done map[*pkg]bool) int {
	done[p] = true
	lines := p.lines
	for _, from := range p.imports {
		if q := r[from]; q != nil && q.module == p.module && !done[q] {
			lines += r.needs(q, done)
		}
	}
	return lines
}

// count returns the counts by the names of their limits.
func (r repository) count(words map[string]int) map[string]int {
	counts := map[string]int{}
	for _, p := range r {
		unit := "module " + p.module + " "
		if p.name == "main" && p.internal() {
			unit = "tool " + p.folder + " "
		}
		counts[unit+"files"] += p.files
		counts[unit+"lines"] += p.lines
		counts[unit+"tests"] += p.tests
		counts[unit+"exported"] += r.exported(p)
		if p.folder == "." {
			counts["root files"], counts["root tests"], counts["root exported"] = p.files, p.tests, r.exported(p)
			counts["root lines"] = r.needs(p, map[*pkg]bool{})
		}
		if p.module != "." || p.folder == "." || p.internal() {
			r.countTypes(counts, p)
		}
	}
	for _, n := range words {
		counts["markdown words"] += n
	}
	return counts
}

// countTypes counts types that are too large. Types of one name in a module share a limit.
func (r repository) countTypes(counts map[string]int, p *pkg) {
	for name, t := range p.types {
		fields, methods := r.members(p, t, true)
		if name == "TimingWheel" {
			maps.DeleteFunc(methods, func(method string, _ bool) bool { return ast.IsExported(method) })
		}
		unit := "type " + p.module + " " + name
		if len(fields) > mostFields && name != "Stats" {
			counts[unit+" fields"] = max(counts[unit+" fields"], len(fields))
		}
		if len(methods) > mostMethods {
			counts[unit+" methods"] = max(counts[unit+" methods"], len(methods))
		}
	}
}
