package results

import (
	"strconv"
	"strings"
	"unicode/utf8"

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

// Paragraph wraps a text at 100 columns and ends it with a newline.
func Paragraph(text string) string {
	const columns = 100
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		switch {
		case width == 0:
		case width+1+size > columns:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += size
	}
	return b.String() + "\n"
}
