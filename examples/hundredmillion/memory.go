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
	timerBytes  = 34        // of one pending timer: 29 in the wheel, and room for what the collector has not taken yet
	memoryFixed = 128 << 20 // of the program, and of the small wheel of the trial
	bitmapBytes = 2.0 / 8   // of one timer: has expired, was refused
	addressable = 1 << 31   // bytes that a 32-bit process can have on any system
	is32Bit     = math.MaxInt == math.MaxInt32
	handleRoom  = 1 + 1.0/16 // handles are for a random share: some room beside the mean
)

// bytesEach is how much memory one timer of a run needs.
func bytesEach(cfg config) float64 {
	return timerBytes + bitmapBytes + cfg.handled()*handleBytes*handleRoom
}

// memoryFor is how much memory a run needs.
func memoryFor(cfg config) uint64 { return memoryFixed + uint64(float64(cfg.n)*bytesEach(cfg)) }

// timersFor is the inverse of memoryFor.
func timersFor(cfg config, bytes uint64) int {
	if bytes < memoryFixed {
		return 0
	}
	return int(min(float64(bytes-memoryFixed)/bytesEach(cfg), maxTimers))
}

// memorySource tells how much memory there is for this process.
type memorySource struct {
	name  string
	bytes func() (uint64, error) // an error: not known, or no limit
}

var errNoLimit = errors.New("no limit")

// memorySources are those that this machine may have.
func memorySources() []memorySource {
	return []memorySource{
		{memoryOfMachine, machineMemory},
		{"the limit of its control group", memlimit.FromCgroup},
		{"GOMEMLIMIT", func() (uint64, error) {
			if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
				return uint64(limit), nil
			}
			return 0, errNoLimit
		}},
		{"the addresses of a 32-bit process", func() (uint64, error) {
			if is32Bit {
				return addressable, nil
			}
			return 0, errNoLimit
		}},
	}
}

// fitMemory says how much memory the run needs and how much there is, and returns an error if that
// is less: the system would begin to swap, or end some process.
func fitMemory(cfg config, sources []memorySource, w io.Writer) error {
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
		return fmt.Errorf("-n %d needs about %s of memory, and there are %s (%s): %s",
			cfg.n, humanize.IBytes(need), humanize.IBytes(have), name, fits)
	}
	there := "how much there is could not be found out"
	if name != "" {
		there = fmt.Sprintf("there are %s (%s)", humanize.IBytes(have), name)
	}
	fmt.Fprintf(w, "%s: about %s of memory needed; %s\n", figures.Plural(cfg.n, "timer"), humanize.IBytes(need), there)
	return nil
}

// kilobytes finds a line like "MemAvailable:   24268876 kB", of which Linux has many.
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
