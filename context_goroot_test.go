package timingwheel_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/internal/testscale"
)

// shim has the API of package context, with deadlines on a wheel.
const shim = `package context

import (
	std "context"
	"time"

	wheel "github.com/timingwheel-go/timingwheel"
)

type (
	Context         = std.Context
	CancelFunc      = std.CancelFunc
	CancelCauseFunc = std.CancelCauseFunc
)

var (
	Canceled         = std.Canceled
	DeadlineExceeded = std.DeadlineExceeded
)

func Background() Context                            { return std.Background() }
func TODO() Context                                  { return std.TODO() }
func WithValue(parent Context, key, val any) Context { return std.WithValue(parent, key, val) }
func WithoutCancel(parent Context) Context           { return std.WithoutCancel(parent) }
func Cause(c Context) error                          { return std.Cause(c) }

func AfterFunc(ctx Context, f func()) func() bool        { return std.AfterFunc(ctx, f) }
func WithCancel(parent Context) (Context, CancelFunc)    { return std.WithCancel(parent) }
func WithCancelCause(parent Context) (Context, CancelCauseFunc) {
	return std.WithCancelCause(parent)
}
func WithTimeout(parent Context, d time.Duration) (Context, CancelFunc) {
	return wheel.Default().WithTimeout(parent, d)
}
func WithTimeoutCause(parent Context, d time.Duration, cause error) (Context, CancelFunc) {
	return wheel.Default().WithTimeoutCause(parent, d, cause)
}
func WithDeadline(parent Context, t time.Time) (Context, CancelFunc) {
	return wheel.Default().WithDeadline(parent, t)
}
func WithDeadlineCause(parent Context, t time.Time, cause error) (Context, CancelFunc) {
	return wheel.Default().WithDeadlineCause(parent, t, cause)
}
`

// internals stand in for the internal packages of Go's tests.
var internals = map[string]string{
	"asan/asan.go":       "package asan\n\nconst Enabled = false\n",
	"race/race.go":       "package race\n\nconst Enabled = false\n",
	"testenv/testenv.go": "package testenv\n\nimport \"testing\"\n\nfunc SkipIfOptimizationOff(testing.TB) {}\n",
}

// insideTests matches tests that use unexported types of package context.
var insideTests = regexp.MustCompile(`(?m)^func Test\w+\(t \*testing\.T\) \{\n\tXTest.*\n\}\n`)

// differences are edits of tests for which no context of another package can behave like one of
// package context: its children in package context have another name, and they end asynchronously
// if a context of package context above it ends.
var differences = map[string]string{
	`"context.Background."; !strings.HasPrefix`:          `"context."; !strings.HasPrefix`,
	"default:\n\t\t\terrorf(\"ctx should be canceled\")": "case <-time.After(time.Minute):\n\t\t\terrorf(\"ctx should be canceled\")",
}

// copyTests copies those files of a package in goroot that match pattern into the module, and makes
// them import the shim.
func copyTests(t *testing.T, goroot, module, pkg, pattern string) {
	t.Helper()
	dir := filepath.Join(module, filepath.Base(pkg))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	files, err := filepath.Glob(filepath.Join(goroot, "src", pkg, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(file), "example") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text = bytes.ReplaceAll(text, []byte(`"context"`), []byte(`"shim/context"`))
		text = bytes.ReplaceAll(text, []byte(`"internal/`), []byte(`"shim/`))
		text = insideTests.ReplaceAll(text, nil)
		if filepath.Base(file) == "x_test.go" {
			for old, replacement := range differences {
				require.Equal(t, 1, bytes.Count(text, []byte(old)), old)
				text = bytes.Replace(text, []byte(old), []byte(replacement), 1)
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644))
	}
}

// The tests of packages context and database/sql pass with contexts of a wheel.
func TestGoTestsPassWithContextsOfTheWheel(t *testing.T) {
	t.Parallel()
	goTool, err := exec.LookPath("go")
	if err != nil || !testscale.Full() {
		t.Skip("compiles the tests of the Go installation; set TIMINGWHEEL_TESTS=full")
	}
	env, err := exec.Command(goTool, "env", "GOROOT").Output()
	require.NoError(t, err)
	goroot := strings.TrimSpace(string(env))
	root, err := filepath.Abs(".")
	require.NoError(t, err)
	module := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(module, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	const path = "github.com/timingwheel-go/timingwheel"
	write("go.mod", strings.Replace(string(mod), "module "+path, "module shim", 1)+
		"\nrequire "+path+" v0.0.0\n\nreplace "+path+" => "+root+"\n")
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	write("go.sum", string(sum))
	write("context/context.go", shim)
	for name, text := range internals {
		write(name, text)
	}
	copyTests(t, goroot, module, "context", "x_test.go")
	copyTests(t, goroot, module, "context", "afterfunc_test.go")
	copyTests(t, goroot, module, "context", "net_test.go")
	copyTests(t, goroot, module, "database/sql", "*.go")
	cmd := exec.Command(goTool, "test", "-mod=mod", "-vet=off", "-count=1", "-timeout=2m", "./...")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
