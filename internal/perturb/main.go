// Command perturb runs tests on a changed runtime of Go that delays goroutines at random, and so
// finds faults that depend on a rare order of events:
//
//	go run ./internal/perturb [flags] [packages and flags of go test]
//	go run ./internal/perturb -for 2m -race -- -short . ./keyed
//
// It derives the changed files from the sources of the installed Go, writes them into a temporary
// folder and builds with the flag -overlay. A delay is a yield, a pause of the thread, or a pause
// of the goroutine alone. It happens after a goroutine was started, woken or chosen to run,
// around calls to a mutex and before calls to atomic types. The seed of the delays is printed. The
// same seed gives the same delays, but the operating system still chooses the order of the threads,
// so a failure may need several runs. A downloaded toolchain cannot be changed.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "perturb:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	seed           uint64
	steps, atomics uint64
	longest        time.Duration
	duration       time.Duration
	race           bool
}

func run() error {
	var o options
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1e9), "seed of the first run; the next run has the next seed")
	flag.Uint64Var(&o.steps, "steps", 50, "delay one scheduling step in `n`, 0 for none")
	flag.Uint64Var(&o.atomics, "atomics", 1000, "delay one atomic operation in `n`, 0 for none")
	flag.DurationVar(&o.longest, "longest", time.Millisecond, "the longest delay")
	flag.DurationVar(&o.duration, "for", 0, "repeat with further seeds until this time has passed since the compilation")
	flag.BoolVar(&o.race, "race", false, "use the race detector")
	flag.Parse()

	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "perturb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, err := overlay(strings.TrimSpace(string(goroot)), dir)
	if err != nil {
		return err
	}
	args := []string{"test", "-overlay", file, "-vet=off", "-count=1"}
	if o.race {
		args = append(args, "-race")
	}
	args = append(args, flag.Args()...)
	if err := o.test(0, append(args, "-run=^$")); err != nil { // compile
		return err
	}
	start := time.Now()
	for seed := o.seed; ; seed++ {
		fmt.Printf("perturb: seed %d\n", seed)
		if err := o.test(seed, args); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if time.Since(start) >= o.duration {
			return nil
		}
	}
}

// test runs go with args. The delays have the seed.
func (o options) test(seed uint64, args []string) error {
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"PERTURB_SEED="+strconv.FormatUint(seed, 10),
		"PERTURB_STEPS="+strconv.FormatUint(o.steps, 10),
		"PERTURB_ATOMICS="+strconv.FormatUint(o.atomics, 10),
		"PERTURB_LONGEST="+strconv.FormatInt(o.longest.Microseconds(), 10))
	if os.Getenv("GOMAXPROCS") == "" {
		// A paused thread keeps its P, and the others have work.
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(4*runtime.NumCPU()))
	}
	return cmd.Run()
}
