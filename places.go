package timingwheel

import (
	"math"
	"slices"
	"sync"
)

// places keeps the callbacks of a wheel that run at once within [Options.MaxRunning]. A worker
// takes a place before it claims anything. It keeps the place until it ends, or until it comes back
// from a callback, or a batch, while another shard is in line. Invariants, whenever mu is free:
//
//	R1  free is MaxRunning less the places that workers hold or are about to get
//	R2  if a shard is in line, free is 0
//
// A worker that finds due timers and no place puts its shard in line. So no due timer waits while
// a place is free. Order of locks: wheelMu, then mu.
type places[T any] struct {
	mu   sync.Mutex
	free int
	line []*shardOf[T] // those with inLine
}

// take takes a place. If none is free and s is not nil, it puts s in line.
func (p *places[T]) take(s *shardOf[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		return true
	}
	if s != nil {
		p.join(s)
	}
	return false
}

// left returns the number of free places. If it is 0 and s is not nil, left puts s in line. A nil p
// stands for no limit.
func (p *places[T]) left(s *shardOf[T]) int {
	if p == nil {
		return math.MaxInt
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 && s != nil {
		p.join(s)
	}
	return p.free
}

// pass is called for a worker with a place whose shard has more due. If another shard is first in
// line, it gets the place, and the worker's shard goes to the end.
func (p *places[T]) pass(w *worker[T]) {
	p.mu.Lock()
	first := p.next()
	if first != nil {
		p.join(w.s)
		w.placed = first == w.s
		w.replaced = false // the workers in its place are too few
	}
	p.mu.Unlock()
	if !w.placed {
		go p.run(first)
	}
}

// give takes a place back. The first shard in line gets it.
func (p *places[T]) give() {
	p.mu.Lock()
	first := p.next()
	if first == nil {
		p.free++
	}
	p.mu.Unlock()
	if first != nil {
		go p.run(first)
	}
}

// join puts a shard at the end of the line, unless it is in line. mu is held.
func (p *places[T]) join(s *shardOf[T]) {
	if !s.inLine {
		s.inLine = true
		p.line = append(p.line, s)
	}
}

// next takes the first shard out of the line, or returns nil. mu is held.
func (p *places[T]) next() *shardOf[T] {
	if len(p.line) == 0 {
		return nil
	}
	s := p.line[0]
	p.line = slices.Delete(p.line, 0, 1)
	s.inLine = false
	return s
}

// run runs a worker of a shard that has got a place.
func (p *places[T]) run(s *shardOf[T]) {
	s.wheelMu.Lock()
	w := s.newWorker()
	w.placed = true
	s.owner.crew.coming++
	w.run()
}

// ready reports whether something is due and w has a place to run it in. If w has none, its shard
// is in line.
func (w *worker[T]) ready() bool {
	s := w.s
	p := s.engine.places
	switch {
	case s.owner.due.ready == 0:
		return false
	case p == nil:
		return true
	case !w.placed:
		w.served, w.placed = false, p.take(s)
	case w.served:
		w.served = false
		p.pass(w)
	}
	return w.placed
}

// takePlace takes a place for a spare, and reports whether it may run callbacks.
func (w *worker[T]) takePlace() bool {
	p := w.s.engine.places
	if p == nil {
		return true
	}
	w.placed = p.take(nil)
	return w.placed
}
