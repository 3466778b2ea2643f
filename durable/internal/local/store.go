// Package local is the state machine of the stores whose consumers all run in one process, memstore
// and pebblestore. [State] keeps queues in a sorted map, a [DB]. [Shared] has their members and
// hints.
package local

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// State is the queues of a store: their messages in a [DB], and in memory what matters only while
// the store is open, which is leases, tokens in use and the position of claims. Its memory grows
// with the messages in flight, not with the messages stored. If the next State does not keep the
// leases, a message that was claimed is scheduled there at its original due time, and a message
// that had begun counts one more crash.
//
// A State is used by one goroutine at a time, except for Synced.
type State struct {
	db     DB
	shared *Shared
	queues map[string]*queue
	dirty  []*partition // their counters are to be written
	last   *State       // of the process, in Load only

	group  uint64        // identifies the changes since the last Flush
	synced atomic.Uint64 // the changes up to this number are durable
}

type queue struct {
	number     uint32
	partitions []*partition
	config     driver.Config // with the limits of dead letters
}

// entry is the value of queueKey.
type entry struct {
	Number     uint32
	Partitions uint16
	Limits     [5]int64
}

func (s *State) store(number uint32, config *driver.Config) {
	e := entry{number, uint16(config.Partitions), [5]int64(contract.Limits(*config))} //nolint:gosec // at most MaxPartitions
	b, _ := binary.Append(nil, binary.BigEndian, &e)                                  // its size is fixed
	s.db.Set(queueKey(config.Queue), b)
}

// Load returns the queues that a DB holds, and [driver.ErrVersion] for a DB of another format. It
// keeps the leases of the process's last State, which is no longer used, if that is not nil.
func Load(db DB, shared *Shared, last *State) (*State, error) {
	s := &State{db: db, shared: shared, queues: make(map[string]*queue), last: cmp.Or(last, new(State))}
	b, err := db.Get(keyVersion)
	if err != nil {
		return nil, err
	}
	if b == nil {
		db.Set(keyVersion, binary.BigEndian.AppendUint64(nil, FormatVersion))
		return s, nil
	}
	if len(b) != 8 {
		return nil, fmt.Errorf("%w: the version has %d bytes", ErrCorrupt, len(b))
	}
	if v := binary.BigEndian.Uint64(b); v != FormatVersion {
		return nil, fmt.Errorf("%w: it has format version %d; this program reads and writes version %d",
			driver.ErrVersion, v, FormatVersion)
	}
	for name := range s.last.queues { // not in a call, which would fail after a change
		_, _ = s.find(name)
	}
	s.last = new(State)
	return s, nil
}

// Flush passes the counters that have changed since the last Flush to the [DB]. Call it before the
// changes of the DB are committed, and after Load. It returns a number for Synced. A store whose DB
// is lost with the process need not call it.
func (s *State) Flush() (group uint64) {
	for _, p := range s.dirty {
		p.dirty = false
		p.counters.flush(&p.table)
	}
	s.dirty = s.dirty[:0]
	s.group++
	return s.group - 1
}

// Synced notes that all changes up to a Flush are durable.
func (s *State) Synced(group uint64) { s.synced.Store(group) }

// open loads a queue, and creates it or changes its limits if config says so.
func (s *State) open(config *driver.Config) (*queue, error) {
	q, err := s.find(config.Queue)
	switch {
	case err != nil:
		return nil, err
	case q == nil && config.Existing:
		return nil, fmt.Errorf("%s: %w: %q", s.shared.Name, driver.ErrNoQueue, config.Queue)
	case q == nil:
		return s.create(contract.NewConfig(*config))
	}
	joined, err := contract.JoinConfig(*config, len(q.partitions), contract.Limits(q.config))
	if err != nil {
		return nil, fmt.Errorf("%s: queue %q: %w", s.shared.Name, config.Queue, err)
	}
	if !slices.Equal(contract.Limits(joined), contract.Limits(q.config)) {
		q.config = joined
		s.store(q.number, &joined)
	}
	return q, nil
}

// find returns a queue, loads it if necessary, or returns nil if it does not exist.
func (s *State) find(name string) (*queue, error) {
	if q := s.queues[name]; q != nil {
		return q, nil
	}
	b, err := s.db.Get(queueKey(name))
	if b == nil || err != nil {
		return nil, err
	}
	var e entry
	n, err := binary.Decode(b, binary.BigEndian, &e)
	config, invalid := contract.JoinConfig(driver.Config{Queue: name}, int(e.Partitions), e.Limits[:])
	if err != nil || invalid != nil || n != len(b) {
		return nil, fmt.Errorf("%s: %w: the entry of queue %q is %x", s.shared.Name, ErrCorrupt, name, b)
	}
	q := &queue{e.Number, make([]*partition, config.Partitions), config}
	for i := range q.partitions {
		if q.partitions[i], err = s.loadPartition(&s.shared.of(name).hints, q.number, i); err != nil {
			return nil, fmt.Errorf("%s: queue %q: %w", s.shared.Name, name, err)
		}
	}
	for i, p := range q.partitions { // now that nothing can fail
		if last := s.last.queues[name]; last != nil && len(last.partitions) == len(q.partitions) {
			p.leases.keepFrom(&last.partitions[i].leases, s.last.synced.Load(), p)
		}
		p.countCrashes()
		_ = p.findHead(nil) // if it fails, claims do
	}
	s.queues[name] = q
	return q, nil
}

// create creates a queue with defaults instead of zeros.
func (s *State) create(config driver.Config) (*queue, error) {
	b, err := s.db.Get(keyNext)
	if err != nil {
		return nil, err
	}
	number := uint32(0)
	if len(b) == 4 {
		number = binary.BigEndian.Uint32(b)
	}
	s.db.Set(keyNext, binary.BigEndian.AppendUint32(nil, number+1))
	s.store(number, &config)
	return s.find(config.Queue)
}

// Runner runs the calls to a store. Run calls call.Do once and commits its changes together. If Do
// returns an error after a change, the State must not be used again.
type Runner interface {
	Run(ctx context.Context, call *Call) error
}

// Call is a call that a [driver.Backend] makes to its store.
type Call struct {
	Do      func(*State) error
	Warm    func(Getter) // reads what Do will read; nil: nothing worth reading ahead
	Bytes   int          // size of the messages that the call stores; 0: it stores none
	Waits   bool         // the call returns after all changes that it may have seen are durable; Do may set it
	Changes bool         // the call may change or lease messages, which a snapshot refuses
}

// Getter reads a key of a [DB], concurrently with the methods of the DB.
type Getter func(key []byte) (value []byte, err error)

// Store opens, lists and deletes queues.
type Store interface {
	Open(ctx context.Context, config driver.Config) (driver.Backend, error)
	driver.Lister
}

// NewStore returns a store of a Runner, which runs calls on a [State] with the same Shared.
func NewStore(r Runner, shared *Shared) Store { return &store{r, shared} }

type store struct {
	runner Runner
	shared *Shared
}

func (s *store) Open(ctx context.Context, config driver.Config) (driver.Backend, error) {
	config.Existing = config.Existing || s.shared.Snapshot
	if err := contract.CheckConfig(config); err != nil {
		return nil, fmt.Errorf("%s: %w", s.shared.Name, err)
	}
	b := &backend{runner: s.runner, shared: s.shared}
	err := s.runner.Run(ctx, &Call{Waits: true, Changes: config.Update, Do: func(s *State) error {
		q, err := s.open(&config)
		if err == nil {
			b.number, b.config = q.number, q.config
		}
		return err
	}})
	if err != nil {
		return nil, err
	}
	if s.shared.Groups {
		return grouper{b}, nil
	}
	return b, nil
}

func (s *store) Queues(ctx context.Context) (names []string, err error) {
	err = s.runner.Run(ctx, &Call{Waits: true, Do: func(s *State) error {
		names = []string{}
		return s.db.Scan(queueKey(""), queueKey("\xff"), func(key, _ []byte) bool {
			names = append(names, string(key[len(queueKey("")):]))
			return true
		})
	}})
	return names, err
}

// DeleteQueue is O(1) in the messages of the queue. A directory frees their space later.
func (s *store) DeleteQueue(ctx context.Context, name string) error {
	return s.runner.Run(ctx, &Call{Waits: true, Changes: true, Do: func(state *State) error {
		q, err := state.open(&driver.Config{Queue: name, Existing: true})
		if err != nil {
			return err
		}
		key := func(number uint32) []byte { return binary.BigEndian.AppendUint32([]byte{1}, number) }
		state.db.Delete(queueKey(name))
		state.db.DeleteRange(key(q.number), key(q.number+1))
		delete(state.queues, name)
		state.dirty = slices.DeleteFunc(state.dirty, func(p *partition) bool { return p.table.queue == q.number })
		s.shared.of(name).beat(driver.Never.Time(), driver.Member{}, 0) // all members expire
		for i, p := range q.partitions {
			p.hints.send(driver.Hint{Partition: i}) // the next claim ends the consumer
		}
		return nil
	}})
}
