package timingwheel

import (
	"fmt"
	"math"
	"reflect"

	"github.com/timingwheel-go/timingwheel/internal/arena"
)

// checkOccupancy compares Occupancy with a count that goes from the timers' nodes to their buckets
// and slots, where Occupancy goes from the slots and the queue to the buckets. Once it lets go of
// the lock all the time, once not at all.
func (m *model) checkOccupancy() {
	for _, step := range []int{1 + m.step%3, math.MaxInt} {
		o := m.sut.occupancy(step, math.MaxInt32)
		checkSums(m, o)
		switch {
		case o.Pending != len(m.pending) || o.Unseen != 0:
			m.failf("Occupancy: %d pending, %d unseen, want %d", o.Pending, o.Unseen, len(m.pending))
		case !o.Now.Equal(m.time(m.now)) && !m.stopped:
			m.failf("Occupancy: now is %v, want %v", o.Now, m.time(m.now))
		case o.Stopped != m.stopped:
			m.failf("Occupancy: stopped is %v", o.Stopped)
		}
		if err := m.sut.verifyOccupancy(o); err != nil {
			m.failf("Occupancy in steps of %d: %v", step, err)
		}
	}
	o := m.sut.occupancy(1, 8) // only the slots nearest to the hands, where there are more buckets than that
	checkSums(m, o)
	if o.Pending != len(m.pending) {
		m.failf("Occupancy of a few slots: %d pending, %d unseen, want %d", o.Pending, o.Unseen, len(m.pending))
	}
}

func (e *engine[T]) verifyOccupancy(o Occupancy) error {
	want := Occupancy{Levels: make([]LevelOccupancy, len(o.Levels))}
	for l := range want.Levels {
		want.Levels[l] = o.Levels[l]
		want.Levels[l].Timers, want.Levels[l].Later, want.Levels[l].Cells = 0, 0, make([]int, e.size)
	}
	for _, s := range e.shards {
		s.wheelMu.Lock()
		s.tallyNodes(&want)
		s.wheelMu.Unlock()
	}
	if o.Due != want.Due || o.Moving != want.Moving {
		return fmt.Errorf("%d due and %d moving, want %d and %d", o.Due, o.Moving, want.Due, want.Moving)
	}
	for l := range o.Levels { // wheels of the model are small: a cell is a slot
		if !reflect.DeepEqual(o.Levels[l], want.Levels[l]) {
			return fmt.Errorf("level %d is %+v, want %+v", l, o.Levels[l], want.Levels[l])
		}
	}
	return nil
}

// tallyNodes counts the timers of all nodes in use.
func (s *shard) tallyNodes(o *Occupancy) {
	own := &s.owner
	o.Due += own.due.pending()
	for p := range s.slots.Pager.Len() {
		pg := s.slots.Pages.At(uint32(p))
		for k := 0; pg != nil && k < arena.PageSize; k++ {
			if pg.Pos[k] == 0 {
				continue // free, or a plan in a run; nothing is left in the inbox
			}
			b := own.store.all[own.store.chunks.meta(pg.Pos[k]>>chunkShift).owner]
			switch b.state {
			case bucketCascading:
				o.Moving++
			case bucketQueued:
				l := &o.Levels[b.level]
				shift := uint(b.level) * s.bits
				l.Timers++
				l.Cells[(int64(b.slot)-own.wheel.cur>>shift)&(s.size-1)]++
				if b.at>>shift-own.wheel.cur>>shift >= s.size {
					l.Later++
				}
			}
		}
	}
}
