package results

import (
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"
)

// Format formats a figure with its unit, to about four digits. It omits the denominator of the unit
// ("/op", "/timer"), which the tables show in another column.
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
