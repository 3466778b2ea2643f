package main

import (
	"math"
	"strconv"
	"strings"
)

// quantity writes a figure with three digits and its unit: "155 ns", "1.23 ms", "30.3 B", "12".
func quantity(v float64, unit string) string {
	what, _, _ := strings.Cut(unit, "/")
	switch {
	case what == "sec" || strings.HasSuffix(what, "-sec"):
		return seconds(v)
	case what == "B":
		return digits(v) + " B"
	default:
		return digits(v)
	}
}

func seconds(v float64) string {
	if v == 0 {
		return "0"
	}
	for _, scale := range []struct {
		unit string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if math.Abs(v) >= 0.9995*scale.size {
			return digits(v/scale.size) + " " + scale.unit
		}
	}
	return digits(v/1e-9) + " ns"
}

// digits writes three significant digits, and all those before the point.
func digits(v float64) string {
	switch size := math.Abs(v); {
	case v == math.Trunc(v) || size >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
