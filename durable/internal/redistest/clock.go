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

// Clock is the wall clock of servers, which can be set while they run. Their timers go by another clock and are not touched.
type Clock struct {
	t       testing.TB
	file    string
	library string
}

//go:embed preload/clock.c
var clockSource []byte

// clockFile names the environment variable by which a server finds the file of its clock.
const clockFile = "TIMINGWHEEL_TEST_CLOCK"

// NewClock returns a clock that shows the time of the machine, for [Options.Clock]. It works by a library that is compiled here and
// loaded into the server, so the test is skipped on systems other than Linux, and where there is no C compiler; see [EnvRequire].
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

// Set makes the clock differ from that of the machine: it is ahead by a positive offset and behind by a negative one.
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
