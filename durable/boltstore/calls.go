package boltstore

import (
	"encoding/binary"
	"fmt"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	bolt "go.etcd.io/bbolt"
)

// Calls from other processes may arrive twice, or late: the client repeats a call whose reply was
// lost, and the failed connection may still deliver the first copy. The file therefore keeps each
// caller's last call. That record is written in the transaction of the call itself, so a call
// takes effect once even if the process that has the file open is killed. See [driver.Call]. The
// first such call to a partition creates its bucket "calls". The bucket holds:
//
//	'c' ‖ caller            → number (8), last instant (8), a status for each message
//	't' ‖ instant ‖ caller  → nothing; the order in which calls are forgotten
//	'f'                     → the latest instant of the calls that were forgotten (8)
var (
	bucketCalls  = []byte("calls")
	keyForgotten = []byte{'f'}
)

// forgetPerCall is the largest number of calls that a new call forgets. The number is more than
// one, so that calls do not accumulate.
const forgetPerCall = 4

// once makes a call for another process unless the call has already taken effect, and returns the
// statuses of its messages. If a copy of the call arrives too late, once returns a
// [driver.LateError] as late. err is an error of the transaction.
func (w *partitionWriter) once(c *driver.Call, n int, do func() ([]driver.Status, error)) (
	statuses []driver.Status, late *driver.LateError, err error,
) {
	if c.Caller == "" {
		statuses, err = do()
		return statuses, nil, err
	}
	b, err := w.root.CreateBucketIfNotExists(bucketCalls)
	if err != nil {
		return nil, nil, err
	}
	now := driver.Instant(max(1, w.now.UnixMilli()))
	forgotten := callInstant(b.Get(keyForgotten))
	callKey := append([]byte{'c'}, c.Caller...)
	if last := b.Get(callKey); last != nil {
		if len(last) < 16 {
			return nil, nil, fmt.Errorf("%w: the last call of %q has %d bytes; there must be at least 16",
				ErrCorrupt, c.Caller, len(last))
		}
		switch number := binary.BigEndian.Uint64(last); {
		case number == c.Seq && len(last) == 16+n:
			for _, s := range last[16:] {
				statuses = append(statuses, driver.Status(s))
			}
			return statuses, nil, nil
		case number >= c.Seq:
			return nil, &driver.LateError{Now: max(now, forgotten), Unknown: forgotten >= c.NotAfter}, nil
		}
	}
	after := max(now, forgotten)
	if c.NotAfter <= after || c.NotAfter > after.Add(driver.MaxAhead) {
		return nil, &driver.LateError{Now: after, Unknown: forgotten >= c.NotAfter}, nil
	}
	if statuses, err = do(); err != nil {
		return nil, nil, err
	}
	w.dirty = true
	return statuses, nil, rememberCall(b, callKey, c, statuses, now, forgotten)
}

// rememberCall replaces a caller's last call, and forgets calls whose last instant has passed.
func rememberCall(
	b *bolt.Bucket, callKey []byte, c *driver.Call, statuses []driver.Status, now, forgotten driver.Instant,
) error {
	if last := b.Get(callKey); last != nil {
		if err := b.Delete(timeKey(callInstant(last[8:]), c.Caller)); err != nil {
			return err
		}
	}
	value := binary.BigEndian.AppendUint64(nil, c.Seq)
	value = binary.BigEndian.AppendUint64(value, uint64(c.NotAfter))
	for _, s := range statuses {
		value = append(value, byte(s))
	}
	if err := b.Put(callKey, value); err != nil {
		return err
	}
	if err := b.Put(timeKey(c.NotAfter, c.Caller), empty); err != nil {
		return err
	}
	latest := forgotten
	for range forgetPerCall {
		k, _ := b.Cursor().Seek([]byte{'t'})
		if len(k) < 9 || k[0] != 't' || callInstant(k[1:]) >= now {
			break
		}
		latest = max(latest, callInstant(k[1:]))
		caller := append([]byte{'c'}, k[9:]...)
		if err := b.Delete(append([]byte(nil), k...)); err != nil {
			return err
		}
		if err := b.Delete(caller); err != nil {
			return err
		}
	}
	if latest == forgotten {
		return nil
	}
	return b.Put(keyForgotten, binary.BigEndian.AppendUint64(nil, uint64(latest)))
}

func timeKey(at driver.Instant, caller string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{'t'}, uint64(at)), caller...)
}

// callInstant returns the instant at the beginning of b, or 0 if b is too short.
func callInstant(b []byte) driver.Instant {
	if len(b) < 8 {
		return 0
	}
	return driver.Instant(binary.BigEndian.Uint64(b))
}
