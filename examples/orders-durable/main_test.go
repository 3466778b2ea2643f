package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable"
)

// TestMain plays the first run if the test binary is started as that.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && !strings.HasPrefix(os.Args[1], "-") {
		main()
	}
	os.Exit(m.Run())
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	assert.NoError(t, runTwice(&out))
	assert.Contains(t, out.String(), "RIGHT: ")
	assert.NotContains(t, out.String(), "first run: <nil>", "it is killed")
}

// A queue that delivers early, loses an order or delivers a paid one is found.
func TestWrongQueueIsFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		orders []int
		delay  time.Duration
		found  string
	}{
		"early":    {[]int{3, 4, 5, 6, 7, 8, 9}, 0, " 7 early"},
		"lost":     {[]int{4, 5, 6, 7, 8, 9}, timeToPay, "[order-4 order-5 order-6 order-7 order-8 order-9]"},
		"paid one": {[]int{0, 3, 4, 5, 6, 7, 8}, timeToPay, "[order-0 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := withQueue(filepath.Join(t.TempDir(), "orders.db"), func(ctx context.Context, q *durable.Queue) error {
				for _, i := range tt.orders {
					_, err := q.Enqueue(ctx, durable.Message{ID: fmt.Sprint("order-", i), Delay: tt.delay})
					assert.NoError(t, err)
				}
				ctx, cancel := context.WithTimeout(ctx, 2*timeToPay) // what is lost does not come
				defer cancel()
				return cancelUnpaid(ctx, q, io.Discard)
			})
			assert.ErrorContains(t, err, tt.found)
		})
	}
}
