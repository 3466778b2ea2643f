package boltstore

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// queue is what all backends of one queue share.
type queue struct {
	store      *Store
	name       string
	partitions []*partition
	members    local.Members
	hints      local.Hints
}

// load makes the queue in the file if it is not there, and reads what the memory holds of it.
func (q *queue) load(partitions int) error {
	n := 0
	err := q.store.insist(func(tx *bolt.Tx) (err error) {
		n, err = q.create(tx, partitions)
		return err
	})
	for more := true; more && err == nil; {
		err = q.store.insist(func(tx *bolt.Tx) (err error) {
			more, err = q.countCrashes(tx, n)
			return err
		})
	}
	if err != nil {
		return err
	}
	parts := make([]*partition, n)
	err = q.store.insist(func(tx *bolt.Tx) error {
		for i := range parts {
			if parts[i], err = q.loadPartition(tx, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		q.partitions = parts
	}
	return err
}

// create makes the buckets of a queue, or finds how many partitions it has.
func (q *queue) create(tx *bolt.Tx, partitions int) (int, error) {
	if b := queueBucket(tx, q.name); b != nil {
		n := b.Get(keyPartitions)
		if len(n) != 8 || binary.BigEndian.Uint64(n)-1 >= driver.MaxPartitions {
			return 0, fmt.Errorf("%w: the number of partitions is %x", ErrCorrupt, n)
		}
		has := int(binary.BigEndian.Uint64(n))
		if partitions != 0 && partitions != has {
			return 0, partitionsError(q.name, has, partitions)
		}
		return has, nil
	}
	if partitions == 0 {
		partitions = driver.DefaultPartitions
	}
	b, err := tx.Bucket(bucketQueues).CreateBucket([]byte(q.name))
	if err == nil {
		err = b.Put(keyPartitions, binary.BigEndian.AppendUint64(nil, uint64(partitions)))
	}
	if err == nil {
		err = b.Put(keyCreated, binary.BigEndian.AppendUint64(nil, uint64(local.Floor(q.store.options.Now()))))
	}
	for i := 0; i < partitions && err == nil; i++ {
		err = createPartition(b, i)
	}
	return partitions, err
}

func createPartition(queue *bolt.Bucket, i int) error {
	b, err := queue.CreateBucket(partitionName(i))
	if err != nil {
		return err
	}
	var parts buckets
	for _, p := range parts.all() {
		if _, err := b.CreateBucket(p.name); err != nil {
			return err
		}
	}
	return b.Put(keyState, (&state{tokens: 1}).encode())
}

// countCrashes counts a crash of what had begun, as noted in the file, and removes the notes. It stops after crashBytes, and reports
// whether there is more. The next claim decides what had too many, see record.suspect.
func (q *queue) countCrashes(tx *bolt.Tx, partitions int) (more bool, err error) {
	written := 0
	for i := range partitions {
		b, err := q.buckets(tx, i)
		if err != nil {
			return false, err
		}
		s, err := decodeState(b.root.Get(keyState))
		if err != nil {
			return false, fmt.Errorf("partition %d: %w", i, err)
		}
		before := s.crashed
		c := b.begun.Cursor()
		for k, _ := c.First(); k != nil && !more; k, _ = c.First() {
			id := string(k)
			written += crashCost
			if r, err := decode(id, b.records.Get(k)); err == nil && r.State == driver.StateScheduled {
				r.Crashes, r.last, r.suspect = counted(r.Crashes), 0, true
				s.crashed++
				written += len(r.Body)
				if err := b.records.Put([]byte(id), r.encode()); err != nil {
					return false, err
				}
			}
			if err := b.begun.Delete([]byte(id)); err != nil {
				return false, err
			}
			more = written > crashBytes
		}
		if s.crashed != before {
			err = b.root.Put(keyState, s.encode())
		}
		if err != nil || more {
			return more, err
		}
	}
	return false, nil
}

// A transaction of countCrashes ends after so many bytes. Each note counts as some, since what has been deleted in a transaction is walked over
// again for each note that follows.
const (
	crashBytes = 32 << 20
	crashCost  = 4 << 10
)
