package wheelnet

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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

	args := []string{"test", "-v", "-vet=off", "-count=1", "-overlay=" + file, "-skip=^(TestReadFromTimeout|TestWriteToTimeout)$"}
	out, err := exec.Command("go", append(args, "./testdata/gonet")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	passed := strings.Count("\n"+string(out), "\n--- PASS: Test")
	assert.GreaterOrEqual(t, passed, 16, "%s: %s", runtime.Version(), out)
	t.Logf("%d tests passed", passed)
}
