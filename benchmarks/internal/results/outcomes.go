package results

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
)

// Outcome is a benchmark that has no figures, or not all of them, and why.
type Outcome struct {
	Benchmark Benchmark
	Failed    bool // it was tried; otherwise it cannot be done
	Reason    string
}

var outcomeLine = regexp.MustCompile(`^--- (FAIL|SKIP): (Benchmark\S+): (.+)$`)

// WriteOutcome writes an outcome as ReadOutcomes finds it among the lines of results.
func WriteOutcome(out io.Writer, name string, failed bool, reason string) error {
	how := "SKIP"
	if failed {
		how = "FAIL"
	}
	_, err := fmt.Fprintf(out, "--- %s: Benchmark%s: %s\n", how, name, reason)
	return err
}

// ReadOutcomes returns what cmd/compare has written about benchmarks without figures, in order.
func ReadOutcomes(in io.Reader) ([]Outcome, error) {
	var all []Outcome
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if found := outcomeLine.FindStringSubmatch(lines.Text()); found != nil {
			all = append(all, Outcome{Parse(found[2]), found[1] == "FAIL", found[3]})
		}
	}
	return all, lines.Err()
}
