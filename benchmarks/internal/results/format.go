package results

import (
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"
)

// Format writes a figure with its unit to about four digits. What a figure is counted by ("/op",
// "/timer") stands in a column of its own.
func Format(v float64, unit string) string {
	what, _, _ := strings.Cut(unit, "/")
	switch {
	case v == 0:
		return "0"
	case what == "sec" || strings.HasSuffix(what, "-sec"):
		return benchunit.Scale(v, benchunit.Decimal) + "s"
	case what == "B":
		return benchunit.Scale(v, benchunit.Binary) + "B"
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}
