package main

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBitmapHasWhatWasAdded(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 31, 32, 33, 1000} {
		b := newBitmap(n)
		for id := range uint64(n) {
			assert.False(t, b.has(id))
			assert.True(t, b.add(id))
			assert.False(t, b.add(id))
			assert.True(t, b.has(id))
		}
	}
}

func TestConcurrentAddsOfANumberSucceedOnce(t *testing.T) {
	t.Parallel()
	const n = 10_000
	b := newBitmap(n)
	var added atomic.Int64
	var adding sync.WaitGroup
	for range 4 {
		adding.Go(func() {
			for id := range uint64(n) {
				if b.add(id) {
					added.Add(1)
				}
			}
		})
	}
	adding.Wait()
	assert.EqualValues(t, n, added.Load())
}
