package results

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseCountInvertsFormatCount(t *testing.T) {
	for text, n := range map[string]int{"0": 0, "1": 1, "999": 999, "1k": 1_000, "1500": 1_500, "100k": 100_000, "1M": 1_000_000, "2147M": 2_147_000_000} {
		assert.Equal(t, text, FormatCount(n))
		got, err := ParseCount(text)
		require.NoError(t, err)
		assert.Equal(t, n, got)
	}
	for _, bad := range []string{"", "k", "-1", "1.5M", "1G", "1 k", "2148M", "99999999999999999999"} {
		_, err := ParseCount(bad)
		assert.ErrorContains(t, err, "is not a number of timers such as", bad)
	}
}
