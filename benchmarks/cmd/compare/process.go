package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/workload"
	"golang.org/x/perf/benchfmt"
)

// failure is why a job has no complete result.
type failure struct {
	timeout bool
	limit   time.Duration
	phase   string // the last phase of the workload
	reason  string // "" after a timeout
}

func (f *failure) Error() string {
	reason := f.reason
	if f.timeout {
		reason = fmt.Sprintf("timeout after %v", f.limit)
	}
	if f.phase != "" && f.timeout {
		reason += ", " + f.phase
	}
	return reason
}

// measure runs a job in its own process. After a failure it also returns the results until then. If
// ctx is done it returns the error of ctx.
func measure(ctx context.Context, cfg config, j job) ([]*benchfmt.Result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(request{j.workload.Name, j.subject.Name, j.pending, j.busy, cfg.procs, cfg.time, cfg.grace()})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, cfg.limit)
	defer cancel()
	var stdout bytes.Buffer
	var stderr stderrParser
	process := exec.CommandContext(limited, program, workerCommand, string(text))
	process.Stdout, process.Stderr = &stdout, &stderr
	process.Env = append(os.Environ(), "GOTRACEBACK=single") // not a list of a million goroutines
	err = process.Run()
	done, parseErr := readResults(&stdout)
	switch {
	case ctx.Err() != nil:
		return done, ctx.Err()
	case limited.Err() != nil:
		return done, &failure{timeout: true, limit: cfg.limit, phase: stderr.phase}
	case err != nil:
		return done, &failure{phase: stderr.phase, reason: stderr.reason(err)}
	case parseErr != nil:
		return done, parseErr
	case len(done) == 0:
		return nil, &failure{reason: "measured nothing"}
	}
	return done, nil
}

// readResults parses the output of a process. The last line of a killed process may be incomplete.
func readResults(out *bytes.Buffer) ([]*benchfmt.Result, error) {
	complete := out.Bytes()[:bytes.LastIndexByte(out.Bytes(), '\n')+1]
	reader := benchfmt.NewReader(bytes.NewReader(complete), "a process")
	var all []*benchfmt.Result
	for reader.Scan() {
		switch r := reader.Result().(type) {
		case *benchfmt.Result:
			all = append(all, r.Clone())
		case *benchfmt.SyntaxError:
			return all, r
		}
	}
	return all, reader.Err()
}

// stderrParser finds the phase of a process and the reason of its death in its standard error.
type stderrParser struct {
	rest      []byte // an incomplete line
	phase     string
	panicLine string // first line of a panic
	last      string
}

func (p *stderrParser) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, found := bytes.Cut(p.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		p.rest = rest
		p.line(string(line))
	}
}

func (p *stderrParser) line(line string) {
	switch phase, isPhase := strings.CutPrefix(line, phasePrefix); {
	case isPhase:
		p.phase = phase
	case p.panicLine == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		p.panicLine = line
	case strings.TrimSpace(line) != "":
		p.last = line
	}
}

// reason returns why the process ended with err.
func (p *stderrParser) reason(err error) string {
	var exit *exec.ExitError
	switch {
	case p.panicLine != "":
		return p.panicLine
	case errors.As(err, &exit) && exit.Exited() && p.last != "":
		return p.last
	default:
		return err.Error()
	}
}

// rounded rounds to five significant digits.
func rounded(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	if err != nil {
		return v
	}
	return short
}

// workerCommand is the first argument of a process that measures one job. The second is a request.
const workerCommand = "worker"

// phasePrefix is the prefix of the lines on standard error in which a worker names its next phase.
const phasePrefix = "phase: "

// busyProcs is GOMAXPROCS of the workloads with spinning goroutines, so that their number means the
// same load on every machine.
const busyProcs = 2

// request is the JSON form of a job for a worker.
type request struct {
	Workload string
	Subject  string
	Pending  int
	Busy     int
	Procs    []int
	Time     time.Duration
	Grace    time.Duration
}

// runWorker runs one job, writes its results and returns the exit code.
func runWorker(args []string, stdout, stderr io.Writer) int {
	if err := runRequest(args, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	return exitOK
}

func runRequest(args []string, stdout, stderr io.Writer) error {
	var r request
	if len(args) != 1 {
		return fmt.Errorf("%s needs one argument, a request in JSON", workerCommand)
	}
	if err := json.Unmarshal([]byte(args[0]), &r); err != nil {
		return fmt.Errorf("%s: %w", workerCommand, err)
	}
	out := benchfmt.NewWriter(stdout)
	p := workload.Params{Pending: r.Pending, Busy: r.Busy, Procs: r.Procs, Time: r.Time, Grace: r.Grace,
		Phase: func(what string) { fmt.Fprintln(stderr, phasePrefix+what) }}
	var failed error
	emit := func(j job) func(workload.Result) {
		return func(r workload.Result) { failed = errors.Join(failed, out.Write(benchmarkLine(j, r))) }
	}
	if r.Workload == floorJob.workload.Name {
		workload.RunFloor(p, emit(floorJob))
		return failed
	}
	w, known := workload.Find(r.Workload)
	if !known {
		return fmt.Errorf("%s: no workload %q", workerCommand, r.Workload)
	}
	s, known := workload.FindSubject(r.Subject)
	if !known {
		return fmt.Errorf("%s: no implementation %q", workerCommand, r.Subject)
	}
	if len(w.Busy) > 0 {
		runtime.GOMAXPROCS(min(busyProcs, runtime.NumCPU()))
	}
	err := s.Run(w, p, emit(job{w, s, r.Pending, r.Busy}))
	return errors.Join(err, failed)
}

// benchmarkLine returns a result as a line of benchmark output. As in package testing, the name
// ends in GOMAXPROCS.
func benchmarkLine(j job, r workload.Result) *benchfmt.Result {
	name, procs := j.name(), runtime.GOMAXPROCS(0)
	if r.Procs > 0 {
		name, procs = fmt.Sprintf("%s/procs=%d", name, r.Procs), r.Procs
	}
	if procs > 1 {
		name = fmt.Sprintf("%s-%d", name, procs)
	}
	line := &benchfmt.Result{Name: benchfmt.Name(name), Iters: r.N}
	for _, v := range r.Values {
		line.Values = append(line.Values, benchfmt.Value{Value: rounded(v.Value), Unit: v.Unit})
	}
	return line
}
