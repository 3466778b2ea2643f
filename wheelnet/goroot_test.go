package wheelnet

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The deadline tests of Go's package net, from GOROOT, pass with connections of this package. Two
// tests are left out, because their packet connections stay in package net.
func TestDeadlineTestsOfPackageNet(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a program for several seconds")
	}
	t.Parallel()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "net", "timeout_test.go"))
	if err != nil {
		t.Skip("no sources of Go: ", err)
	}
	// TestVariousDeadlines runs each timeout three times in a row. Once is enough, because three
	// processes run it below.
	source = bytes.Replace(source, []byte("numRuns := 3\n"), []byte("numRuns := 1\n"), 1)
	directory := t.TempDir()
	tests := filepath.Join(directory, "timeout_test.go")
	require.NoError(t, os.WriteFile(tests, source, 0o600))
	shim, err := filepath.Abs(filepath.Join("testdata", "gonet"))
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(shim, "timeout_test.go"): tests},
	})
	require.NoError(t, err)
	overlayFile := filepath.Join(directory, "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	binary := filepath.Join(directory, "gonet.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+overlayFile, "-o", binary,
		"-ldflags=-s -w", // without symbols, linking is faster
		"./testdata/gonet")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	// Two variants of TestVariousDeadlines set GOMAXPROCS, so each of them has a process of its
	// own.
	const alone = "TestVariousDeadlines1Proc|TestVariousDeadlines4Proc"
	runs := []string{"-test.skip=^(TestReadFromTimeout|TestWriteToTimeout|" + alone + ")$"}
	for _, name := range strings.Split(alone, "|") {
		runs = append(runs, "-test.run=^"+name+"$")
	}
	var passed atomic.Int64
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() {
			out, err := exec.Command(binary, "-test.v", run).CombinedOutput()
			assert.NoError(t, err, "%s", out)
			passed.Add(int64(strings.Count("\n"+string(out), "\n--- PASS: Test")))
		})
	}
	wg.Wait()
	assert.GreaterOrEqual(t, passed.Load(), int64(16), runtime.Version())
	t.Logf("%d tests passed", passed.Load())
}
