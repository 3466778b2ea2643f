package boltstore

import (
	"encoding/binary"
	"errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// The reserve holds values that mean nothing. A transaction copies each page that it changes, so even
// one that removes messages needs space. If there is none, part of the reserve is deleted, and its pages
// serve the transactions that remove messages. A transaction that stores something new restores the
// reserve first, so it is refused until there is room for both.
//
// The reserve must not need adjacent pages, as few of the free pages of a file that has been full are
// adjacent. A value is therefore smaller than a page, since bbolt stores a larger one in adjacent pages.
// The same holds for the list of free pages, which is written before a page on it can be used. The
// values of one step therefore free so few pages that the list stays small while nothing else is free.
const (
	reserveBytes = 4 << 20
	reserveValue = 1000 // with key and headers, four values fill a page of 4096 bytes
	reserveStep  = 256  // values
)

// keepReserve makes what is missing of the reserve. Its first values go first, see spendReserve.
func (w *writer) keepReserve() error {
	b, err := w.tx.CreateBucketIfNotExists(bucketReserve)
	if err != nil {
		return err
	}
	b.FillPercent = 1
	for at, size := 0, w.store.options.reserve; at < size; at += reserveValue {
		k := binary.BigEndian.AppendUint32(nil, uint32(at))
		if b.Get(k) != nil {
			return nil
		}
		if err := b.Put(k, make([]byte, min(reserveValue, size-at))); err != nil {
			return err
		}
	}
	return nil
}

// spendReserve gives pages of the reserve to the transactions that follow. It is an error if nothing is left of the reserve.
func (s *Store) spendReserve() error {
	return s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketReserve)
		if b == nil {
			return berrors.ErrBucketNotFound
		}
		for range reserveStep {
			k, _ := b.Cursor().First()
			if k == nil {
				return tx.DeleteBucket(bucketReserve)
			}
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// insist is update, which takes from the reserve where space has run out.
func (s *Store) insist(f func(tx *bolt.Tx) error) error {
	err := s.update(f)
	for errors.Is(err, driver.ErrFull) && s.spendReserve() == nil {
		err = s.update(f)
	}
	return err
}
