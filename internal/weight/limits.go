package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	limitsFile = "internal/weight/limits.txt"
	header     = "# The limits of \"go run ./internal/weight -check\". They only go down: -update lowers them.\n"
	lineFormat = "%-44s %6d\n"
)

func format(limits map[string]int) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		fmt.Fprintf(&text, lineFormat, name, limits[name])
	}
	return text.String()
}

// limitLine matches a line of the file, and a line of a patch that adds one.
var limitLine = regexp.MustCompile(`(?m)^\+?(\w.*?) +(\d+)$`)

// unlimited matches the quantities without a limit. Every fault that is mended gets a test, so only
// the tests of the root package have one. A command exports nothing.
var unlimited = regexp.MustCompile(`^(module|tool) \S+ tests$|^tool \S+ exported$`)

// parse returns the lowest limit of each name in the text of a file or of patches.
func parse(text []byte) map[string]int {
	limits := map[string]int{}
	for _, match := range limitLine.FindAllSubmatch(text, -1) {
		name := string(match[1])
		limit, err := strconv.Atoi(string(match[2]))
		if old, ok := limits[name]; err == nil && (!ok || limit < old) {
			limits[name] = limit
		}
	}
	return limits
}

// checkLimits compares the counts with the file of limits. If update is true, it writes the file
// first.
func checkLimits(counts map[string]int, update bool) error {
	maps.DeleteFunc(counts, func(name string, _ int) bool { return unlimited.MatchString(name) })
	text, err := os.ReadFile(limitsFile)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	// An archive of the source has no history, and no limit is compared with it.
	history, _ := exec.Command("git", "log", "--no-color", "--full-history", "--format=", "--unified=0", "--patch", "--", limitsFile).Output()
	limits, lowest := parse(text), parse(history)
	next, faults, advice := compare(counts, limits, lowest)
	if update {
		if err := os.WriteFile(limitsFile, []byte(header+format(next)), 0o644); err != nil {
			return err
		}
		_, faults, advice = compare(counts, next, lowest)
	}
	for _, line := range append(advice, faults...) {
		fmt.Println(line)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%d limits do not hold", len(faults))
	}
	return nil
}

// compare returns the limits that -update writes, the faults, and the limits that may be lower.
// lowest are the lowest limits of the past, if they are known.
func compare(counts, limits, lowest map[string]int) (next map[string]int, faults, advice []string) {
	next = map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n := counts[name]
		limit, limited := limits[name]
		low, known := lowest[name]
		isNew := !limited && len(limits) > 0 || !known && len(lowest) > 0
		switch {
		case isNew && strings.HasPrefix(name, "type "):
			faults = append(faults, fmt.Sprintf("%s: %d; a new type may have %d fields and %d methods", name, n, mostFields, mostMethods))
			continue
		case !limited:
			limit = n
			faults = append(faults, fmt.Sprintf("%s: %d has no limit; set it by -update", name, n))
		case known && limit > low:
			faults = append(faults, fmt.Sprintf("%s: the limit %d was %d; limits only go down", name, limit, low))
		case n > limit:
			faults = append(faults, fmt.Sprintf("%s: %d; the limit is %d", name, n, limit))
		case n < limit:
			advice = append(advice, fmt.Sprintf("%s: the limit %d can go down to %d by -update", name, limit, n))
		}
		if known {
			limit = min(limit, low)
		}
		next[name] = min(limit, n)
	}
	return next, faults, advice
}
