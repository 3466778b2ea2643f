package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// A mutant is one small change of a file.
type mutant struct {
	key         string // file, function, operator and ordinal within the function
	file        string // relative to the module
	line        int
	start, end  int // the bytes that replacement replaces
	replacement string
}

// enumerate returns all mutants of a file of the module in dir, in the order of the source.
func enumerate(dir, file string) ([]mutant, error) {
	source, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	e := enumerator{file: file, source: source, fset: fset, ordinals: map[string]int{}}
	for _, decl := range parsed.Decls {
		e.declaration(decl)
	}
	slices.SortStableFunc(e.mutants, func(a, b mutant) int { return cmp.Compare(a.start, b.start) })
	return e.mutants, nil
}

// sample returns n of the mutants in their order. A mutant is chosen by the hash of its key alone,
// so that two versions of a file have most of their samples in common.
func sample(all []mutant, n, seed int) []mutant {
	rank := func(m mutant) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, seed, m.key, seed)
		return h.Sum64()
	}
	chosen := slices.Clone(all)
	slices.SortFunc(chosen, func(a, b mutant) int { return cmp.Compare(rank(a), rank(b)) })
	chosen = chosen[:min(n, len(chosen))]
	slices.SortStableFunc(chosen, func(a, b mutant) int { return cmp.Compare(a.start, b.start) })
	return chosen
}

type enumerator struct {
	file     string
	source   []byte
	fset     *token.FileSet
	function string // the function or variable being walked
	ordinals map[string]int
	mutants  []mutant
}

// add adds the mutant that replaces the source from pos to end.
func (e *enumerator) add(operator string, pos, end token.Pos, replacement string) {
	prefix := e.file + " " + e.function + " " + operator
	e.ordinals[prefix]++
	start := e.fset.Position(pos)
	e.mutants = append(e.mutants, mutant{
		key:         fmt.Sprint(prefix, " ", e.ordinals[prefix]),
		file:        e.file,
		line:        start.Line,
		start:       start.Offset,
		end:         e.fset.Position(end).Offset,
		replacement: replacement,
	})
}

func (e *enumerator) text(n ast.Node) string {
	return string(e.source[e.fset.Position(n.Pos()).Offset:e.fset.Position(n.End()).Offset])
}

// verifies matches the functions that check invariants. No test notices when one checks less.
var verifies = regexp.MustCompile(`^[vV]erify`)

// declaration walks a function, or each variable and constant of another declaration.
func (e *enumerator) declaration(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Body == nil || verifies.MatchString(decl.Name.Name) {
			return
		}
		e.function = decl.Name.Name
		if decl.Recv != nil {
			e.function = receiver(decl.Recv.List[0].Type) + "." + e.function
		}
		e.walk(decl.Body, decl.Type)
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if spec, ok := spec.(*ast.ValueSpec); ok {
				e.function = spec.Names[0].Name
				for _, value := range spec.Values {
					e.walk(value, nil)
				}
			}
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	}
	return t.(*ast.Ident).Name
}

// walk adds the mutants of n, which is part of a function of the given type.
func (e *enumerator) walk(n ast.Node, function *ast.FuncType) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			e.walk(n.Body, n.Type)
			return false
		case *ast.IfStmt:
			e.negate("negate", n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				e.negate("negate", n.Cond)
			}
		case *ast.BinaryExpr:
			if other, ok := swaps[n.Op]; ok {
				e.add(other.operator, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.token.String())
			}
		case *ast.BasicLit:
			if n.Kind == token.INT {
				e.add("plus", n.Pos(), n.End(), "("+n.Value+" + 1)")
				e.add("minus", n.Pos(), n.End(), "("+n.Value+" - 1)")
			}
		case *ast.ReturnStmt:
			e.returns(n, function)
		case *ast.BlockStmt:
			e.drop(n.List)
		case *ast.CaseClause:
			e.drop(n.Body)
		case *ast.CommClause:
			e.drop(n.Body)
		}
		return true
	})
}

// swaps are the operators that replace another.
var swaps = map[token.Token]struct {
	operator string
	token    token.Token
}{
	token.LSS:  {"boundary", token.LEQ},
	token.LEQ:  {"boundary", token.LSS},
	token.GTR:  {"boundary", token.GEQ},
	token.GEQ:  {"boundary", token.GTR},
	token.EQL:  {"equal", token.NEQ},
	token.NEQ:  {"equal", token.EQL},
	token.LAND: {"logic", token.LOR},
	token.LOR:  {"logic", token.LAND},
}

// negate negates x, except a comparison whose mutant "equal" is the same.
func (e *enumerator) negate(operator string, x ast.Expr) {
	if b, ok := x.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	e.add(operator, x.Pos(), x.End(), "!("+e.text(x)+")")
}

// returns negates each bool that a return statement names.
func (e *enumerator) returns(n *ast.ReturnStmt, function *ast.FuncType) {
	if function == nil || function.Results == nil || len(n.Results) != function.Results.NumFields() {
		return
	}
	i := 0
	for _, field := range function.Results.List {
		name, ok := field.Type.(*ast.Ident)
		for range max(1, len(field.Names)) {
			if ok && name.Name == "bool" {
				e.negate("return", n.Results[i])
			}
			i++
		}
	}
}

// drop removes each call and assignment.
func (e *enumerator) drop(list []ast.Stmt) {
	for _, n := range list {
		switch n := n.(type) {
		case *ast.AssignStmt:
			name, ok := n.Lhs[0].(*ast.Ident)
			if n.Tok == token.DEFINE || ok && name.Name == "_" {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
		default:
			continue
		}
		e.add("drop", n.Pos(), n.End(), "")
	}
}
