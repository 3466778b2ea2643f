package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Clock is the wall clock of servers. Tests can set it while the servers run. Timers of servers use
// another clock, which is not affected.
type Clock struct {
	t       testing.TB
	file    string
	library string
}

//go:embed preload/clock.c
var clockSource []byte

// clockFile is the environment variable that names the file of the clock.
const clockFile = "TIMINGWHEEL_TEST_CLOCK"

// NewClock returns a clock for [Options.Clock] that shows the machine's time. It compiles a library
// that is loaded into the server. The test is skipped on systems other than Linux and without a C
// compiler: see [EnvRequire].
func NewClock(t testing.TB) *Clock {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skipf("redistest: the clock of a server can be set on Linux only")
	}
	compiler := requireProgram(t, "cc")
	dir := t.TempDir()
	c := &Clock{t: t, file: filepath.Join(dir, "clock"), library: filepath.Join(dir, "clock.so")}
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("redistest: compile a clock: %v\n%s", err, out)
	}
	c.Set(0)
	return c
}

// Set sets the clock ahead of the machine's clock by offset, or behind it if offset is negative.
func (c *Clock) Set(offset time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset)), 0) //nolint:gosec // the same bits
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		c.t.Errorf("redistest: set the clock: %v", err)
	}
}

func (c *Clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.library, clockFile + "=" + c.file}
}
