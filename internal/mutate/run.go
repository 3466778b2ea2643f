package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The verdicts about a mutant.
const (
	caught     = "caught"
	survived   = "survived"
	notBuilt   = "not-built"
	equivalent = "equivalent"
)

// A tester builds the tests of a module in dir with mutants and runs them.
type tester struct {
	dir     string
	timeout time.Duration // for each run of a test binary
	scratch string        // temporary folder
	proved  bool          // the tests pass without a mutant
}

// try returns the verdict about m, and what caught it. The first call also runs the tests without a
// mutant: they must pass.
func (t *tester) try(m mutant) (verdict, by string, err error) {
	if !t.proved {
		verdict, by, err := t.test(mutant{file: m.file})
		if err != nil {
			return "", "", err
		}
		if verdict != survived {
			return "", "", fmt.Errorf("the tests fail without a mutant: %s", by)
		}
		t.proved = true
	}
	return t.test(m)
}

// test builds the tests with m and runs them. The tests of the mutant's own file run first, then
// the tests of its package and of the root package: most mutants are caught by the first.
func (t *tester) test(m mutant) (verdict, by string, err error) {
	overlay, err := t.overlay(m)
	if err != nil {
		return "", "", err
	}
	packages := []string{filepath.Dir(m.file)}
	if packages[0] != "." {
		packages = append(packages, ".")
	}
	for i, folder := range packages {
		binary := filepath.Join(t.scratch, "mutant.test")
		build := exec.Command("go", "test", "-c", "-p=1", "-vet=off", "-overlay", overlay, "-o", binary, "./"+folder)
		build.Dir = t.dir
		if output, err := build.CombinedOutput(); err != nil {
			return notBuilt, firstLine(string(output)), nil
		}
		runs := []string{"."}
		if related := t.related(m.file); i == 0 && related != "" {
			runs = []string{related, "."}
		}
		for _, run := range runs {
			if by := t.run(binary, folder, run); by != "" {
				return caught, by, nil
			}
		}
	}
	return survived, "", nil
}

// overlay writes the changed file and the file for the flag -overlay.
func (t *tester) overlay(m mutant) (string, error) {
	original := filepath.Join(t.dir, m.file)
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(t.scratch, "mutant.go")
	source = []byte(string(source[:m.start]) + m.replacement + string(source[m.end:]))
	if err := os.WriteFile(changed, source, 0o600); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(t.scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}

// related returns an expression for the tests in the test file of the same name.
func (t *tester) related(file string) string {
	name := filepath.Join(t.dir, strings.TrimSuffix(file, ".go")+"_test.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return "" // no such file
	}
	var names []string
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
			names = append(names, f.Name.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: test timed out|^(?:panic|fatal error): .*`)

// run runs the tests of a binary that match the expression. It returns the name of the first
// failure, or "" if there is none.
func (t *tester) run(binary, folder, expression string) string {
	// A mutant may also keep the test binary from its own timeout.
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout+30*time.Second)
	defer cancel()
	test := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast",
		"-test.timeout="+t.timeout.String(), "-test.run="+expression)
	test.Dir = filepath.Join(t.dir, folder)
	test.WaitDelay = time.Second
	output, err := test.CombinedOutput()
	if err == nil {
		return ""
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "killed after the timeout"
	}
	match := failure.FindStringSubmatch(string(output))
	switch {
	case match == nil:
		return err.Error()
	case match[1] != "":
		return match[1]
	}
	return firstLine(match[0])
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return fmt.Sprintf("%q", s)
}
