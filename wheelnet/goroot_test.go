package wheelnet

import (
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

// Go's own tests of deadlines, from GOROOT, pass with connections of this package. Left out are two
// that use packet connections without a peer, which stay those of package net.
func TestDeadlineTestsOfPackageNet(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a build and ten seconds")
	}
	t.Parallel()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("no go command: ", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "net", "timeout_test.go")
	if _, err := os.Stat(source); err != nil {
		t.Skip("no sources of Go: ", err)
	}
	folder, err := filepath.Abs(filepath.Join("testdata", "gonet"))
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(folder, "timeout_test.go"): source},
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))

	binary := filepath.Join(t.TempDir(), "gonet.test")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, "./testdata/gonet").CombinedOutput()
	require.NoError(t, err, "%s", out)

	// Two tests of five seconds set GOMAXPROCS, so each of them has a process of its own.
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
