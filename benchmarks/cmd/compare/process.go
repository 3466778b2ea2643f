package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

// failure says why a job has not been done.
type failure struct {
	timeout bool
	limit   time.Duration
	phase   string // what it was doing
	reason  string // if it was not too slow
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

// measure does a job in a process of its own. It returns what was measured before a failure, too; if ctx
// has ended it returns ctx's error.
func measure(ctx context.Context, cfg config, j job) ([]*benchfmt.Result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(order{j.workload.Name, j.subject.Name, j.pending, j.busy, cfg.procs, cfg.time, cfg.grace()})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, cfg.limit)
	defer cancel()
	var stdout bytes.Buffer
	var stderr listener
	process := exec.CommandContext(limited, program, childCommand, string(text))
	process.Stdout, process.Stderr = &stdout, &stderr
	process.Env = append(os.Environ(), "GOTRACEBACK=single") // a million goroutines would be listed
	err = process.Run()
	done, parseErr := readLines(&stdout)
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

// readLines parses the results that a process has written; of one that was ended the last line may be
// incomplete.
func readLines(out *bytes.Buffer) ([]*benchfmt.Result, error) {
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

// listener takes from a process's standard error what it is doing and why it has died.
type listener struct {
	rest  []byte // an incomplete line
	phase string
	died  string // the first line of a panic
	last  string
}

func (l *listener) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.rest = rest
		l.hear(string(line))
	}
}

func (l *listener) hear(line string) {
	switch phase, isPhase := strings.CutPrefix(line, phasePrefix); {
	case isPhase:
		l.phase = phase
	case l.died == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		l.died = line
	case strings.TrimSpace(line) != "":
		l.last = line
	}
}

// reason says why a process has ended with err.
func (l *listener) reason(err error) string {
	var exit *exec.ExitError
	switch {
	case l.died != "":
		return l.died
	case errors.As(err, &exit) && exit.Exited() && l.last != "":
		return l.last
	default:
		return err.Error()
	}
}

// rounded has as many digits as a figure deserves.
func rounded(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	if err != nil {
		return v
	}
	return short
}
