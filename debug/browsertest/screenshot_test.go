package browsertest

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel"
)

// pictureLimit keeps the repository small.
const pictureLimit = 200 << 10

// TestScreenshots writes the pictures of the documentation, of a wheel under a load like that of
// examples/dashboard, where TIMINGWHEEL_SCREENSHOTS names a directory.
func TestScreenshots(t *testing.T) {
	directory := os.Getenv("TIMINGWHEEL_SCREENSHOTS")
	if directory == "" {
		t.Skip("TIMINGWHEEL_SCREENSHOTS is not set")
	}
	tw := busy(t)
	p := open(t, wheels("connections", tw, "cache", filled(t, 200_000), "jobs", filled(t, 150)), "")
	p.live("connections")
	p.wait("page.pasts.get('connections').points.length > 40")
	p.do(chromedp.EmulateViewport(1100, 1530))
	for name, value := range map[string]string{"dashboard.png": "light", "dashboard-dark.png": "dark"} {
		p.media(scheme(value))
		shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
		require.NoError(t, err)
		picture := compressed(t, shot.Data)
		assert.LessOrEqual(t, len(picture), pictureLimit, name)
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), picture, 0o644))
	}
}

// compressed is a PNG made smaller, with at most 256 colours: the others are shades at the edges of
// letters.
func compressed(t *testing.T, data []byte) []byte {
	picture, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, paletted(picture)))
	return b.Bytes()
}

// distance is how much two colours differ, of 255, where they differ most.
func distance(a, b color.Color) int {
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	d := func(x, y uint32) int { return max(int(x>>8)-int(y>>8), int(y>>8)-int(x>>8)) }
	return max(d(ar, br), d(ag, bg), d(ab, bb))
}

func paletted(picture image.Image) *image.Paletted {
	frequent := make(map[color.Color]int)
	bounds := picture.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			frequent[picture.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(frequent), func(a, b color.Color) int { return frequent[b] - frequent[a] })
	small := image.NewPaletted(bounds, color.Palette{})
	for _, c := range colours {
		if p := small.Palette; len(p) == 0 || len(p) < 256 && distance(c, p.Convert(c)) > 6 {
			small.Palette = append(p, c)
		}
	}
	index := make(map[color.Color]uint8, len(colours))
	for _, c := range colours {
		index[c] = uint8(small.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[picture.At(x, y)])
		}
	}
	return small
}

// filled is a wheel with timers that nobody touches.
func filled(t *testing.T, n int) *timingwheel.TimingWheel {
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	for range n {
		tw.AfterFunc(time.Minute+time.Duration(rand.ExpFloat64()*float64(time.Hour)), nothing)
	}
	return tw
}

// busy is a wheel on which things happen until the test ends.
func busy(t *testing.T) *timingwheel.TimingWheel {
	tw := filled(t, 20_000)
	over, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over); <-ended })
	go func() {
		defer close(ended)
		var armed []timingwheel.Timer
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for step := 0; ; step++ {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			wave := 1 + math.Sin(float64(step)/400)/2 // a load that comes and goes
			for range int(40 * wave) {
				armed = append(armed, tw.AfterFunc(time.Duration(rand.ExpFloat64()*float64(8*time.Second)), nothing))
				if rand.IntN(3) > 0 {
					armed[len(armed)-1-rand.IntN(min(len(armed), 5000))].Stop()
				}
			}
		}
	}()
	return tw
}
