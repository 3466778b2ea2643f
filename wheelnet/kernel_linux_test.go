package wheelnet

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// io.Copy between connections, and from a file, uses splice and sendfile. strace traces a child
// process that copies.
func TestCopyStaysInTheKernel(t *testing.T) {
	t.Parallel()
	const traced = "WHEELNET_TRACED"
	if route := os.Getenv(traced); route != "" {
		copyFor(t, route)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		require.Empty(t, os.Getenv("TIMINGWHEEL_REQUIRE_STRACE"), "strace is not installed")
		t.Skip("no strace: ", err)
	}
	for route, call := range map[string]string{
		"tcp to tcp":         "splice",
		"tcp to tcp, a part": "splice",
		"unix to tcp":        "splice",
		"tcp to unix":        "splice",
		"file to tcp":        "sendfile",
	} {
		t.Run(route, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "trace")
			cmd := exec.Command(strace, "-f", "-o", log, "-e", "trace=/^(splice|sendfile)", os.Args[0], "-test.run=^TestCopyStaysInTheKernel$")
			cmd.Env = append(os.Environ(), traced+"="+route)
			out, err := cmd.CombinedOutput()
			if err != nil && os.Getenv("TIMINGWHEEL_REQUIRE_STRACE") == "" {
				if _, missing := os.Stat(log); missing != nil {
					t.Skipf("strace is not permitted to trace: %s", out)
				}
			}
			require.NoError(t, err, "%s", out)
			trace, err := os.ReadFile(log)
			require.NoError(t, err)
			assert.Regexp(t, regexp.MustCompile(call+`.*= [1-9]`), string(trace), "%s", out)
		})
	}
}

// copyFor copies along a route, from a connection or a file to a connection.
func copyFor(t *testing.T, route string) {
	tw := newWheel(t, timingwheel.Options{})
	data := make([]byte, 1<<16)
	networks := map[string][2]string{
		"tcp to tcp":         {"tcp", "tcp"},
		"tcp to tcp, a part": {"tcp", "tcp"},
		"unix to tcp":        {"unix", "tcp"},
		"tcp to unix":        {"tcp", "unix"},
		"file to tcp":        {"tcp", "tcp"},
	}[route]
	in, source := pairOf(t, tw, networks[0])
	sink, out := pairOf(t, tw, networks[1])
	go func() {
		source.Write(data) //nolint:errcheck // the length is checked below
		source.Close()
	}()
	go func() {
		defer out.Close()
		var err error
		switch route {
		case "file to tcp":
			name := filepath.Join(t.TempDir(), "file")
			assert.NoError(t, os.WriteFile(name, data, 0o600))
			f, openErr := os.Open(name)
			assert.NoError(t, openErr)
			defer f.Close()
			_, err = io.Copy(out, f)
		case "tcp to tcp, a part":
			_, err = io.CopyN(out, in, int64(len(data)))
		default:
			_, err = io.Copy(out, in)
		}
		assert.NoError(t, err)
	}()
	got, err := io.ReadAll(sink)
	require.NoError(t, err)
	require.Len(t, got, len(data))
}
