package durable_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The store's clock differs from the process's clock, or is set while messages wait. No message
// begins before its due time on the store's clock, and none waits long after it.
func TestStoreClockDeterminesDelivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		offset, set time.Duration // set: step of the clock after 10 s
	}{
		{"equal", 0, 0}, {"5 minutes ahead", 5 * time.Minute, 0}, {"5 minutes behind", -5 * time.Minute, 0},
		{"set back by a minute", time.Hour, -time.Minute}, {"set back by 30 ms", 0, -30 * time.Millisecond}, {"set ahead by a minute", -time.Hour, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				offset := c.offset
				now := func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Now().Add(offset)
				}
				q := open(t, memstore.New(memstore.Options{Now: now}), durable.Options{})
				defer q.Close()
				const n = 400
				late := make(map[string]time.Duration)
				stop := consume(t, q, func(_ context.Context, d *durable.Delivery) error {
					at := now()
					mu.Lock()
					defer mu.Unlock()
					assert.False(t, at.Before(d.Due), "message %s is early by %v", d.ID, d.Due.Sub(at))
					assert.NotContains(t, late, d.ID)
					late[d.ID] = at.Sub(d.Due)
					return nil
				}, durable.ConsumerOptions{})
				for i := range n {
					enqueue(t, q, fmt.Sprint(i), time.Duration(i)*50*time.Millisecond) // for 20 s
				}
				time.Sleep(10*time.Second + 7*time.Millisecond)
				mu.Lock()
				offset += c.set
				mu.Unlock()
				time.Sleep(15*time.Second + max(0, -c.set))
				stop()
				require.Len(t, late, n)
				for id, l := range late {
					assert.LessOrEqual(t, l, 3*time.Second+max(0, c.set), "message %s", id)
				}
			})
		})
	}
}
