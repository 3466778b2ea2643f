package main

import "sync/atomic"

// bitmap is a set of timers by number. add and has are safe for concurrent use.
type bitmap []atomic.Uint32

func newBitmap(n int) bitmap { return make(bitmap, n/32+1) }

// add reports whether the number is new.
func (b bitmap) add(id uint64) bool {
	bit := uint32(1) << (id % 32)
	return b[id/32].Or(bit)&bit == 0
}

func (b bitmap) has(id uint64) bool { return b[id/32].Load()>>(id%32)&1 == 1 }
