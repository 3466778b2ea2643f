package boltstore

import (
	"errors"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
)

// The reserve is a value that means nothing. A transaction copies each page that it changes, so even one that removes messages needs
// space. Where there is none the reserve goes, and its pages serve what removes messages. What stores something new puts the reserve back first,
// so it is refused until there is room for both.
const reserveBytes = 4 << 20

// keepReserve makes the reserve if it is not there.
func (w *writer) keepReserve() error {
	if w.tx.Bucket(bucketReserve) != nil {
		return nil
	}
	b, err := w.tx.CreateBucket(bucketReserve)
	if err == nil {
		err = b.Put(bucketReserve, make([]byte, w.store.options.reserve))
	}
	return err
}

// spendReserve gives the pages of the reserve to the transactions that follow. It is an error where there is no reserve any more.
func (s *Store) spendReserve() error {
	return s.update(func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketReserve) })
}

// insist is update, which takes from the reserve where space has run out.
func (s *Store) insist(f func(tx *bolt.Tx) error) error {
	err := s.update(f)
	if errors.Is(err, driver.ErrFull) && s.spendReserve() == nil {
		err = s.update(f)
	}
	return err
}
