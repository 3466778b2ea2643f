// Package watch observes the callbacks of a wheel: it counts and reports slow callbacks, and it
// labels profiles with their functions.
package watch

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Call is a slow call of a callback, or a slow batch.
type Call struct {
	PC       uintptr       // the function, as passed to Begin
	Took     time.Duration // the duration; if Running is set, the duration so far
	Running  bool          // the call has not ended yet
	Payloads int           // the number of payloads, as passed to Begin
}

// Config determines which calls are slow and how they are reported.
type Config struct {
	After time.Duration // the duration from which on a call is slow; must be positive

	// Report receives each slow call when it has ended, on the goroutine of the call. If Scan is
	// set, Report also receives the call once while it is running. If the call ends during that
	// report, the two reports may overlap or come in the other order. No lock is held, and several
	// goroutines may call Report at once. If Report is nil, slow calls are only counted.
	Report func(Call)

	// Scan also reports slow calls that are still running. One runtime timer scans for them and
	// reports the calls that it finds one after the other, on the goroutine of the timer.
	Scan bool
}

// Watch measures the calls of many goroutines. Each goroutine has a [Record] of its current call
// and of the time at which the call began. A scan reads all records, either for Slow or for the
// timer.
//
// A scan holds no lock that Join, Leave, Begin or End takes, regardless of the number of records.
// Scans exclude each other.
//
// Begin sets the timer unless it is set already. A scan sets the timer again only if an unreported
// call is running, so no timer is set while a wheel is idle. New creates the timer, which therefore
// belongs to the synctest bubble in which New ran.
//
// Rejected: a timer for each call costs as much as the timer of the callback. Measuring only calls
// that return misses the worst calls.
type Watch struct {
	base   time.Time
	after  time.Duration
	pause  time.Duration // the minimum time between two scans of the timer
	report func(Call)
	timer  *time.Timer // nil: no scans

	// armed is set while the timer is set or about to be set. The goroutine that sets armed also
	// sets the timer. Begin sets armed after it has published a call. A scan clears armed before it
	// reads the records for the last time. Therefore at least one of the two sees the other.
	armed atomic.Bool

	_ [64]byte // separates the fields above, which every call reads and which rarely change

	slow atomic.Uint64 // the number of slow calls, counted by scans and by End
	pool pool

	scanMu sync.Mutex // held while a scan reads the records, but not while it reports

	mu          sync.Mutex
	scans       int           // scans of the timer in progress, including their reports
	reportsDone chan struct{} // closed when scans becomes 0; created by ReportsDone
}

// New returns a Watch without records.
func New(c Config) *Watch {
	w := &Watch{base: time.Now(), after: c.After, pause: pauseFor(c.After), report: c.Report}
	if c.Scan && c.Report != nil {
		w.timer = time.AfterFunc(math.MaxInt64, w.scan)
		w.timer.Stop()
	}
	return w
}

// pauseFor bounds the cost of scans, which read all records. If many calls take almost as long as a
// slow call, there is always a call that is about to become slow.
func pauseFor(after time.Duration) time.Duration { return max(after/8, time.Millisecond) }

// now returns the time since New on the monotonic clock.
func (w *Watch) now() time.Duration { return time.Since(w.base) }

// Join returns a record for one goroutine. Join waits only for other calls of Join and Leave. O(1).
func (w *Watch) Join() *Record {
	if r := w.pool.take(nil); r != nil {
		return r
	}
	return w.pool.take(newBlock(w)) // allocated without the lock, because an allocation may have to assist the garbage collector
}

// Leave returns a record to the pool. The last call of the record must have ended, and the
// goroutine must not use the record any more. Leave panics if the record has been returned already.
// O(1).
func (w *Watch) Leave(r *Record) { w.pool.put(r) }

// Record describes the current call of one goroutine. Only that goroutine calls Begin and End,
// alternately.
//
// The word holds the number of the call in its upper 62 bits and the state of the call in the lower
// two. Begin increments the number, so no word is used twice, and a compare-and-swap by a scan
// fails if the call has ended.
//
//	from      to        by     meaning
//	idle      running   Begin  a call begins; the other fields are written before
//	running   counted   Slow   the call is slow and is counted now
//	running   reported  scan   the call is slow, is counted now and will be reported as running
//	counted   reported  scan   the call will be reported as running
//	running   idle      End    the call has ended; it is counted now if it was slow
//	counted   idle      End    the call has ended; it was counted before
//	reported  idle      End    the call has ended; it was counted before
//
// Every slow call leaves the state running exactly once and is counted by that step. Every call
// enters the state reported at most once. The goroutine of the record writes the fields below the
// word while the state is idle. If a scan reads the same word before and after the fields, the
// fields are those of one call.
//
// A record fills a cache line on 64-bit systems. A block begins 0 or 8 bytes after the start of a
// line, so the last 8 bytes of a record are unused, and no two goroutines write to the same line.
type Record struct {
	watch *Watch
	block *block

	word     atomic.Uint64
	began    atomic.Int64 // by the clock of watch
	pc       atomic.Uintptr
	payloads atomic.Int64

	index uint32 // of the record in its block
	_     [12]byte
}

// The states of a call, in the low bits of the word of a record.
const (
	idle uint64 = iota
	running
	counted
	reported

	stateMask = 1<<2 - 1
	nextCall  = 1 << 2
)

// Begin records that the goroutine begins a call of the function at pc, with a number of payloads.
func (r *Record) Begin(pc uintptr, payloads int) {
	w := r.watch
	if r.pc.Load() != pc { // usually equal, and a load is much cheaper than a store
		r.pc.Store(pc)
	}
	if n := int64(payloads); r.payloads.Load() != n {
		r.payloads.Store(n)
	}
	r.began.Store(int64(w.now()))
	r.word.Store(r.word.Load() + nextCall | running)
	if w.timer != nil && !w.armed.Load() && w.armed.CompareAndSwap(false, true) {
		w.set(w.after)
	}
}

// End records that the call has ended, and reports the call if it was slow. Callers defer it, so
// that a panic and runtime.Goexit end the call too.
func (r *Record) End() {
	w := r.watch
	took := w.now() - time.Duration(r.began.Load())
	switch state := r.word.Swap(r.word.Load()&^stateMask) & stateMask; {
	case state != running:
		if took < w.after {
			took = w.now() - time.Duration(r.began.Load()) // a scan found the call slow after the first reading
		}
	case took < w.after:
		return
	default:
		w.slow.Add(1)
	}
	if w.report != nil {
		w.report(Call{PC: r.pc.Load(), Took: took, Payloads: int(r.payloads.Load())})
	}
}

// observe returns the word and the call of the record. The two belong together if the word is still
// the same afterwards.
func (r *Record) observe(now time.Duration) (word uint64, c Call) {
	word = r.word.Load()
	return word, Call{
		PC:       r.pc.Load(),
		Took:     now - time.Duration(r.began.Load()),
		Running:  true,
		Payloads: int(r.payloads.Load()),
	}
}

// mark moves a slow call to the state counted or reported, and counts the call if no scan has
// counted it before. It returns false if the call of that word has ended. Only scans call mark.
func (r *Record) mark(word, state uint64) bool {
	if !r.word.CompareAndSwap(word, word&^stateMask|state) {
		return false
	}
	if word&stateMask == running {
		r.watch.slow.Add(1)
	}
	return true
}

// Slow returns the number of slow calls so far, and how many of them are still running. The first
// number never decreases and is never less than the second. O(records).
func (w *Watch) Slow() (all uint64, running int) {
	w.scanMu.Lock()
	defer w.scanMu.Unlock()
	running = w.countRunning()
	// Scans exclude each other, so each call that a scan has marked has also been counted.
	return w.slow.Load(), running
}

// countRunning returns how many slow calls are running, and marks them. The caller holds scanMu.
func (w *Watch) countRunning() (n int) {
	now := w.now()
	w.pool.each(func(r *Record) {
		word, c := r.observe(now)
		switch word & stateMask {
		case idle:
		case running:
			if c.Took >= w.after && r.mark(word, counted) {
				n++
			}
		default:
			n++
		}
	})
	return n
}

// set sets the timer, but not before the end of the pause. The caller has set armed.
func (w *Watch) set(wait time.Duration) { w.timer.Reset(max(wait, w.pause)) }

// scan reports the calls that have become slow, and sets the timer for the calls that may become
// slow next. A call that begins during a scan either finds armed set, and then this scan or the
// next one sees the call, or finds armed cleared and sets the timer.
func (w *Watch) scan() {
	w.beginScan()
	defer w.endScan()
	slow, wait := w.check()
	if wait == 0 && !w.disarm() {
		wait = w.after
	}
	if wait > 0 {
		w.set(wait)
	}
	for _, c := range slow {
		w.report(c)
	}
}

// disarm clears armed. If an unreported call has begun meanwhile and found armed set, disarm sets
// armed again and returns false, and the caller sets the timer.
func (w *Watch) disarm() bool {
	w.armed.Store(false)
	return !w.unreported() || !w.armed.CompareAndSwap(false, true)
}

// check returns the calls that have become slow since the last check, and the time until the next
// call may become slow. The time is 0 if all running calls have been reported.
func (w *Watch) check() (slow []Call, wait time.Duration) {
	w.scanMu.Lock()
	defer w.scanMu.Unlock()
	now := w.now()
	w.pool.each(func(r *Record) {
		word, c := r.observe(now)
		if s := word & stateMask; s == idle || s == reported {
			return
		}
		// If the call has ended meanwhile, the next call of the record began after now. The next
		// scan sees that call, or unreported does if no scan follows.
		if c.Took >= w.after {
			if r.mark(word, reported) {
				slow = append(slow, c)
			}
			return
		}
		if left := w.after - c.Took; r.word.Load() == word && (wait == 0 || left < wait) {
			wait = left
		}
	})
	return slow, wait
}

// unreported reports whether a call is running that has not been reported.
func (w *Watch) unreported() (found bool) {
	w.pool.each(func(r *Record) {
		s := r.word.Load() & stateMask
		found = found || s == running || s == counted
	})
	return found
}

func (w *Watch) beginScan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scans++
}

func (w *Watch) endScan() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scans--
	if w.scans == 0 && w.reportsDone != nil {
		close(w.reportsDone)
		w.reportsDone = nil
	}
}

// ReportsDone returns a channel that is closed once all scans of the timer have finished reporting,
// or nil if no scan is in progress. After all calls have ended, later scans have nothing to report.
// ReportsDone does not cover reports by End. It returns nil for a nil Watch.
func (w *Watch) ReportsDone() <-chan struct{} {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.scans > 0 && w.reportsDone == nil {
		w.reportsDone = make(chan struct{})
	}
	return w.reportsDone
}

// recordsPerBlock is the number of bits of block.free.
const recordsPerBlock = 64

// pool holds all records of a Watch, in blocks. Scans traverse the blocks without a lock.
//
// A new pool has no block. Later the pool keeps one empty block for the next goroutines, and the
// garbage collector frees all others. In the worst case each record in use keeps a block of its
// own, about 5 KB.
//
// Invariants, whenever mu is not held:
//
//	P1  the list from head along next holds spare and every block with a record in use
//	P2  the list from open along openNext holds every block with free records and records in use
//	P3  all records of spare are free
//
// Rejected: an array of blocks behind an atomic pointer, which is copied to grow. Growing and
// shrinking would be O(blocks), and allocate while the lock is held.
type pool struct {
	// head is the first block. Scans read head and block.next without a lock, and mu guards the
	// writes. New blocks are added at the front. A removed block keeps its own next, so a scan that
	// has reached the block continues to all blocks after it. A scan misses only blocks that were
	// added after the scan began.
	head atomic.Pointer[block]

	mu    sync.Mutex // held for O(1), without allocations, and never by scans
	open  *block
	spare *block // the empty block, or nil
}

// block is a part of a pool.
type block struct {
	records [recordsPerBlock]Record
	next    atomic.Pointer[block]

	// These fields are guarded by the mu of the pool.
	prev               *block // nil: this block is the first
	openPrev, openNext *block
	free               uint64 // bit i: records[i] is free
}

const allFree = math.MaxUint64

func newBlock(w *Watch) *block {
	b := &block{free: allFree}
	for i := range b.records {
		r := &b.records[i]
		r.watch, r.block, r.index = w, b, uint32(i)
	}
	return b
}

// take returns a free record. If there is none, take adds the block added and uses it, or returns
// nil if added is nil.
func (p *pool) take(added *block) *Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.open != nil:
	case p.spare != nil:
		p.pushOpen(p.spare)
		p.spare = nil
	case added != nil:
		p.link(added)
		p.pushOpen(added)
	default:
		return nil
	}
	b := p.open
	i := bits.TrailingZeros64(b.free)
	b.free &^= 1 << i
	if b.free == 0 {
		p.removeOpen(b)
	}
	return &b.records[i]
}

// put returns a record to the pool.
func (p *pool) put(r *Record) {
	b, bit := r.block, uint64(1)<<r.index
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.free&bit != 0 {
		panic("watch: Leave of a record that has been returned already")
	}
	if b.free == 0 {
		p.pushOpen(b)
	}
	b.free |= bit
	if b.free != allFree {
		return
	}
	p.removeOpen(b)
	if p.spare == nil {
		p.spare = b
		return
	}
	p.unlink(b)
}

// link adds b to the front of the list of all blocks.
func (p *pool) link(b *block) {
	first := p.head.Load()
	b.next.Store(first)
	if first != nil {
		first.prev = b
	}
	p.head.Store(b)
}

// unlink removes b from the list of all blocks.
func (p *pool) unlink(b *block) {
	next := b.next.Load()
	if next != nil {
		next.prev = b.prev
	}
	if b.prev == nil {
		p.head.Store(next)
		return
	}
	b.prev.next.Store(next)
	b.prev = nil
}

// pushOpen adds b to the front of the list of open blocks.
func (p *pool) pushOpen(b *block) {
	b.openNext = p.open
	if p.open != nil {
		p.open.openPrev = b
	}
	p.open = b
}

// removeOpen removes b from the list of open blocks.
func (p *pool) removeOpen(b *block) {
	if b.openNext != nil {
		b.openNext.openPrev = b.openPrev
	}
	if b.openPrev == nil {
		p.open = b.openNext
	} else {
		b.openPrev.openNext = b.openNext
	}
	b.openPrev, b.openNext = nil, nil
}

// each calls visit for each record, including free ones, without a lock. It visits every record
// that is in use throughout the call.
func (p *pool) each(visit func(*Record)) {
	for b := p.head.Load(); b != nil; b = b.next.Load() {
		for i := range b.records {
			visit(&b.records[i])
		}
	}
}
