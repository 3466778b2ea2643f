package browsertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/durabledebug"
)

// pictureLimit is the largest size of a picture in bytes. It keeps the repository small.
const pictureLimit = 200 << 10

// TestScreenshots writes the pictures of the documentation to the directory
// TIMINGWHEEL_SCREENSHOTS. They show a wheel under a load as in examples/dashboard, and a queue.
func TestScreenshots(t *testing.T) {
	directory := os.Getenv("TIMINGWHEEL_SCREENSHOTS")
	if directory == "" {
		t.Skip("TIMINGWHEEL_SCREENSHOTS is not set")
	}
	t.Run("wheel", func(t *testing.T) {
		tw := busy(t)
		p := open(t, wheels("connections", tw, "cache", filled(t, 200_000), "jobs", filled(t, 150)), "")
		p.live("connections")
		p.wait("page.pasts.get('connections').points.length > 40")
		p.do(chromedp.EmulateViewport(1100, 1530))
		p.save(filepath.Join(directory, "dashboard.png"), "light")
		p.save(filepath.Join(directory, "dashboard-dark.png"), "dark")
	})
	t.Run("queue", func(t *testing.T) {
		q := busyQueue(t)
		p := open(t, queues(&durabledebug.Handler{Actions: true}, "orders", q, "mail", openQueue(t, memory(), "mail")), "")
		p.live("orders")
		p.wait("page.pasts.get('orders').points.length > 40")
		p.do(chromedp.EmulateViewport(1100, 1640))
		p.save(filepath.Join(directory, "queues.png"), "light")
	})
}

// save writes a picture of the page in a colour scheme.
func (p *tab) save(file, value string) {
	p.Helper()
	p.media(scheme(value))
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	require.NoError(p, err)
	picture := compressed(p.T, shot.Data)
	assert.LessOrEqual(p, len(picture), pictureLimit, file)
	require.NoError(p, os.WriteFile(file, picture, 0o644))
}

// threeMembers is a store that reports its one consumer as three consumers on three machines.
type threeMembers struct{ durable.Store }

func (e threeMembers) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := e.Store.Open(ctx, c)
	return members{b}, err
}

type members struct{ driver.Backend }

func (m members) Members(ctx context.Context) ([]driver.Member, error) {
	real, err := m.Backend.Members(ctx)
	if err != nil || len(real) == 0 {
		return real, err
	}
	var all []driver.Member
	for i, parts := range [][]int{{0}, {1, 3}, {2}} {
		m := real[0]
		m.Name, m.Host, m.PID, m.Partitions = m.Name[:len(m.Name)-1]+"ABC"[i:i+1], fmt.Sprintf("shop-%d.example", i+1), 4711+89*i, parts
		m.Seen = m.Seen.Add(0) - driver.Instant(137*i)
		all = append(all, m)
	}
	return all, nil
}

// busyQueue returns a queue that is in use until the test ends.
func busyQueue(t *testing.T) *durable.Queue {
	q := openQueue(t, threeMembers{memory()}, "orders")
	for i, d := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 10 * time.Hour, 3 * 24 * time.Hour, 60 * 24 * time.Hour} {
		for k := range 3000 / (1 + i%3) {
			_, err := q.Enqueue(t.Context(), durable.Message{ID: fmt.Sprintf("reminder-%d-%d", i, k), Delay: time.Duration(rand.Int64N(int64(d)))})
			require.NoError(t, err)
		}
	}
	reasons := []string{"the payment service answers 503 Service Unavailable", "the address is not known", "the card has expired"}
	consumeUntilEnd(t, q, func(ctx context.Context, d *durable.Delivery) error {
		switch n := rand.IntN(200); {
		case n == 0:
			return durable.Reject(errors.New(reasons[rand.IntN(len(reasons))]))
		case n < 8:
			return errors.New("once more")
		}
		select {
		case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for step := 0; ctx.Err() == nil; step++ {
			time.Sleep(10 * time.Millisecond)
			for range 1 + rand.IntN(int(4+3*math.Sin(float64(step)/400))) {
				_, _ = q.Enqueue(ctx, durable.Message{ID: fmt.Sprintf("order-%d", rand.Int32()), Body: make([]byte, 40+rand.IntN(400)), Delay: time.Duration(rand.ExpFloat64() * float64(10*time.Second))})
			}
		}
	}()
	return q
}

// compressed returns a smaller PNG with at most 256 colours. The colours that are lost are shades
// at the edges of letters.
func compressed(t *testing.T, data []byte) []byte {
	picture, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, paletted(picture)))
	return b.Bytes()
}

// distance returns the largest difference between two colours in red, green or blue, from 0 to 255.
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

// filled returns a wheel with n pending timers.
func filled(t *testing.T, n int) *timingwheel.TimingWheel {
	tw, err := timingwheel.New(timingwheel.Options{})
	require.NoError(t, err)
	t.Cleanup(tw.Stop)
	for range n {
		tw.AfterFunc(time.Minute+time.Duration(rand.ExpFloat64()*float64(time.Hour)), noop)
	}
	return tw
}

// busy returns a wheel that is in use until the test ends.
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
			wave := 1 + math.Sin(float64(step)/400)/2 // the load rises and falls
			for range int(40 * wave) {
				armed = append(armed, tw.AfterFunc(time.Duration(rand.ExpFloat64()*float64(8*time.Second)), noop))
				if rand.IntN(3) > 0 {
					armed[len(armed)-1-rand.IntN(min(len(armed), 5000))].Stop()
				}
			}
		}
	}()
	return tw
}
