package timingwheel

const tombstonesMax = 16

// tombstones are entries of stopped timers whose bits of chunkMeta.alive are still set. The description of a
// random timer's chunk is a cache miss, and a Stop that waited for it would wait for it alone. So where very many
// timers are pending a Stop notes the entry's position only, and the bits of a lot of entries are cleared
// together, their misses overlapping.
//
// The timer itself is stopped at once: its handle has ended, its slot is free and its callback is released.
// Only entries of queued buckets become tombstones, and whoever takes a bucket with timers off the queue, moves entries
// of a list or sets the alarm to a later time settles them first. Until then bucket.live counts them: a bucket may
// seem to hold timers when it holds none, never the other way round.
type tombstones struct {
	n    int
	from int // more timers than that must be pending
	pos  [tombstonesMax]uint32
}

// defers reports whether the entry of a stopped timer, one that is in no lot, may become a tombstone. While any
// other bucket has expired and holds timers it may stand there, and to know takes the look at the description that
// is to be spared.
func (s *shard) defers() bool {
	return s.pending > s.tombs.from && s.ready == 0 && !s.cascade.any() && s.fresh.head == nil
}

// entomb makes a tombstone of the entry at pos.
func (s *shard) entomb(pos uint32) {
	t := &s.tombs
	t.pos[t.n&(tombstonesMax-1)] = pos
	t.n++
	if t.n == tombstonesMax {
		s.settleTombs()
	}
}

// settleTombs clears the bits of all tombstones and does what remove and emptied would have done.
func (s *shard) settleTombs() {
	t := &s.tombs
	if t.n == 0 {
		return
	}
	n, thin, first := t.n, 0, false
	t.n = 0
	var sparse [tombstonesMax]uint32
	for _, pos := range t.pos[:n] { // nothing here depends on the entry before, so that the cache misses overlap
		m := s.chunks.meta(pos >> chunkShift)
		b := s.unmark(m, pos)
		if b.live == 0 {
			s.hollow++
			first = first || b.heapIndex == 0
		}
		if m.sparse() {
			sparse[thin] = pos >> chunkShift
			thin++
		}
	}
	for _, c := range sparse[:thin] {
		if m := s.chunks.meta(c); m != nil && m.owner != noBucket { // else merged into another one meanwhile
			s.thin(s.all[m.owner], c, m)
		}
	}
	s.relieve(first)
}

// settleWheel brings what stands on the wheel up to date: what was stopped leaves it, what is in the nursery comes.
func (s *shard) settleWheel() {
	s.settleTombs()
	s.settleYoung()
}
