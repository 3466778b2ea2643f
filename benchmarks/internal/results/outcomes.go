package results

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
)

// Outcome says why a benchmark has no figures, or not all of them.
type Outcome struct {
	Benchmark Benchmark
	Failed    bool // false: the benchmark cannot run
	Reason    string
}

var outcomeLine = regexp.MustCompile(`^--- (FAIL|SKIP): (Benchmark\S+): (.+)$`)

// WriteOutcome writes an outcome as a line for ReadOutcomes.
func WriteOutcome(out io.Writer, name string, failed bool, reason string) error {
	how := "SKIP"
	if failed {
		how = "FAIL"
	}
	_, err := fmt.Fprintf(out, "--- %s: Benchmark%s: %s\n", how, name, reason)
	return err
}

// ReadOutcomes returns the outcomes among the lines of in, in order.
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
