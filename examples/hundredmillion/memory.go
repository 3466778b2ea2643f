package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/dustin/go-humanize"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

const (
	timerBytes  = 34        // of a pending timer: 29 in the wheel, and room for garbage
	memoryFixed = 128 << 20 // of the program and of the small wheel
	bitmapBytes = 2.0 / 8   // of a timer: two bits, expired and refused
	addressable = 1 << 31   // bytes that a 32-bit process can use on any system
	is32Bit     = math.MaxInt == math.MaxInt32
	handleRoom  = 1 + 1.0/16 // relative room for handles, because their number is random
)

// bytesEach returns the memory for one timer of a run.
func bytesEach(cfg config) float64 {
	return timerBytes + bitmapBytes + cfg.handleShare()*handleBytes*handleRoom
}

// memoryFor returns the memory for a run.
func memoryFor(cfg config) uint64 { return memoryFixed + uint64(float64(cfg.n)*bytesEach(cfg)) }

// timersFor is the inverse of memoryFor.
func timersFor(cfg config, bytes uint64) int {
	if bytes < memoryFixed {
		return 0
	}
	return int(min(float64(bytes-memoryFixed)/bytesEach(cfg), maxTimers))
}

// memorySource is a source of the memory limit of this process.
type memorySource struct {
	name  string
	bytes func() (uint64, error) // an error: unknown or no limit
}

var errNoLimit = errors.New("no limit")

// memorySources returns all sources.
func memorySources() []memorySource {
	return []memorySource{
		{memoryOfMachine, machineMemory},
		{"limit of the control group", memlimit.FromCgroup},
		{"GOMEMLIMIT", func() (uint64, error) {
			if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
				return uint64(limit), nil
			}
			return 0, errNoLimit
		}},
		{"address space of a 32-bit process", func() (uint64, error) {
			if is32Bit {
				return addressable, nil
			}
			return 0, errNoLimit
		}},
	}
}

// checkMemory prints the required and the available memory. It returns an error if the available
// memory is too small, because the system would swap or kill a process.
func checkMemory(cfg config, sources []memorySource, w io.Writer) error {
	need, have, name := memoryFor(cfg), uint64(math.MaxUint64), ""
	for _, s := range sources {
		if bytes, err := s.bytes(); err == nil && bytes < have {
			have, name = bytes, s.name
		}
	}
	if need > have {
		fits := "no timers fit"
		if n := timersFor(cfg, have); n > 0 {
			fits = fmt.Sprintf("use -n %d or fewer", n)
		}
		return fmt.Errorf("-n %d needs about %s of memory, but %s are available (%s): %s",
			cfg.n, humanize.IBytes(need), humanize.IBytes(have), name, fits)
	}
	available := "the available memory is unknown"
	if name != "" {
		available = fmt.Sprintf("%s are available (%s)", humanize.IBytes(have), name)
	}
	fmt.Fprintf(w, "%s need about %s of memory; %s\n", figures.Plural(cfg.n, "timer"), humanize.IBytes(need), available)
	return nil
}

// kilobytes returns the value of a line such as "MemAvailable:   24268876 kB".
func kilobytes(r io.Reader, key string) (bytes uint64, err error) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), ":")
		if !ok || name != key {
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		kb, err := strconv.ParseUint(strings.TrimSpace(number), 10, 53)
		if !ok || err != nil {
			return 0, fmt.Errorf("%s is %q, not a number of kB", key, strings.TrimSpace(value))
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("no %s", key)
}
