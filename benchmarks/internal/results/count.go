package results

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatCount formats a number of timers as in the names of benchmarks: 1k, 2500, 10M.
func FormatCount(n int) string {
	switch {
	case n > 0 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n > 0 && n%1_000 == 0:
		return strconv.Itoa(n/1_000) + "k"
	default:
		return strconv.Itoa(n)
	}
}

// ParseCount parses the format of FormatCount.
func ParseCount(s string) (int, error) {
	digits, factor := s, 1
	if short, ok := strings.CutSuffix(s, "M"); ok {
		digits, factor = short, 1_000_000
	} else if short, ok := strings.CutSuffix(s, "k"); ok {
		digits, factor = short, 1_000
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n > (1<<31-1)/uint64(factor) {
		return 0, fmt.Errorf("%q is not a number of timers such as 500, 10k or 1M", s)
	}
	return int(n) * factor, nil
}
