package webpage

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// themes returns the colours of the light and the dark theme by name. The style sheet has the dark
// colours twice: for the choice of the system and for the choice of the visitor.
func themes(t *testing.T) (found []map[string]string) {
	t.Helper()
	css, err := shared.ReadFile("assets/common.css")
	require.NoError(t, err)
	variable := regexp.MustCompile(`--([a-z0-9]+): (#[0-9a-f]{6});`)
	for block := range strings.SplitSeq(string(css), "color-scheme: ") {
		colours := make(map[string]string)
		block, _, _ := strings.Cut(block, "}")
		for _, m := range variable.FindAllStringSubmatch(block, -1) {
			colours[m[1]] = m[2]
		}
		if len(colours) > 0 {
			found = append(found, colours)
		}
	}
	require.Len(t, found, 3)
	require.Equal(t, found[1], found[2], "both copies of the dark theme must be equal")
	return found[:2]
}

// luminance returns the relative luminance of a colour by WCAG 2.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	require.NoError(t, err, colour)
	linear := func(c uint64) float64 {
		s := float64(c&0xff) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(v>>16) + 0.7152*linear(v>>8) + 0.0722*linear(v)
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

// WCAG AA requires a contrast of 4.5 for text and of 3 for graphics, such as lines and the focus.
func TestColoursHaveContrastOfWCAG(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 21, contrast(t, "#000000", "#ffffff"), 0.001)
	for _, theme := range themes(t) {
		for _, ground := range []string{"page", "card"} {
			for _, text := range []string{"ink", "muted", "accent", "link", "bad"} {
				assert.GreaterOrEqual(t, contrast(t, theme[text], theme[ground]), 4.5, "%s on %s", text, ground)
			}
			for _, line := range []string{"focus", "good", "warn", "one", "two", "three", "h5"} {
				assert.GreaterOrEqual(t, contrast(t, theme[line], theme[ground]), 3.0, "%s on %s", line, ground)
			}
		}
	}
}

// Readers with colour blindness can distinguish the classes of the heat scale by lightness: each
// class is clearly lighter, or clearly darker, than the class before.
func TestHeatScaleIsReadableWithoutHue(t *testing.T) {
	t.Parallel()
	for _, theme := range themes(t) {
		rising := luminance(t, theme["h8"]) > luminance(t, theme["h1"])
		for c := 1; c <= 8; c++ {
			before, after := theme[fmt.Sprintf("h%d", c-1)], theme[fmt.Sprintf("h%d", c)]
			assert.GreaterOrEqual(t, contrast(t, before, after), 1.15, "h%d and h%d", c-1, c)
			assert.Equal(t, rising, luminance(t, after) > luminance(t, before), "h%d and h%d", c-1, c)
		}
	}
}
