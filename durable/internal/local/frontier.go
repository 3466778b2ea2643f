package local

import (
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/internal/heap"
)

// frontier is the position of claims among the scheduled messages of a partition. Leased messages
// stay in the DB. A claim does not walk over them, because each key before front is either leased,
// in free, or unreadable:
//
//	[ leased, leased, free, leased | front → scheduled, scheduled, … ]
//
// A scheduled message before front is in free. Either its lease has ended, or it was stored later
// with an earlier time.
type frontier struct {
	front key
	free  heap.Heap[*freeKey]
	freed map[string]*freeKey // of free, by id

	head  driver.Instant // earliest due time of a readable scheduled message; 0: none
	known bool           // whether head is right: always, but within a call

	behind     key              // deleteGone has deleted the range before it
	unreadable map[key]struct{} // scheduled messages that scans could not read
}

// maxFree limits the length of free if many messages are put and not claimed. A longer free is
// cleared, and front goes back to its first key.
const maxFree = 1 << 16

// freeKey is a scheduled message before the front.
type freeKey struct {
	key
	index int
}

func (f *freeKey) Before(o *freeKey) bool { return f.before(o.key) }
func (f *freeKey) SetHeapIndex(i int)     { f.index = i }

// add notes a message that may be claimed.
func (f *frontier) add(k key) {
	if f.known && (f.head == 0 || k.at < f.head) {
		f.head = k.at
	}
	if !k.before(f.front) {
		return
	}
	f.freed[k.id] = &freeKey{key: k}
	f.free.Push(f.freed[k.id])
	if f.free.Len() > maxFree {
		f.front = f.free.At(0).key
		f.free = heap.Heap[*freeKey]{}
		clear(f.freed)
	}
}

// remove notes that a message that is not leased has left the DB.
func (f *frontier) remove(k key) {
	f.dropFree(k.id)
	delete(f.unreadable, k)
	if k.at <= f.head {
		f.known = false
	}
}

func (f *frontier) dropFree(id string) {
	if free := f.freed[id]; free != nil {
		f.free.Remove(free.index)
		delete(f.freed, id)
	}
}

// read decodes a scheduled message, and notes one that cannot be read.
func (f *frontier) read(k key, value []byte) (r record, ok bool) {
	if r = decode(place{kindScheduled, k}, value); r.msg.State == 0 {
		f.unreadable[k] = struct{}{}
	}
	return r, r.msg.State != 0
}
