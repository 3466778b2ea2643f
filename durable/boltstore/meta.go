package boltstore

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// A bbolt file begins with two pages of meta data, of which the one with the higher transaction counts if it is whole. Behind the
// header of the page: magic number, version, page size and flags as 32 bits, then as 64 bits the page of the root and its sequence, that of the
// list of free pages, the number of pages in use, the transaction, and FNV-1a of all that; in the order of bytes of the machine.
const (
	metaHeader   = 16
	metaSize     = 64
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	noFreelist   = ^uint64(0)
	minPage      = 1 << 10
	maxPage      = 16 << 20
	metaSumBytes = 56
)

// metaPage is what is checked of a page of meta data.
type metaPage struct {
	found                     bool // the magic number is there
	version                   uint32
	page                      uint32
	root, freelist, used, txn uint64
	whole                     bool // the sum is right
}

func readMeta(f *os.File, at int64) (m metaPage) {
	var b [metaSize]byte
	if _, err := f.ReadAt(b[:], at+metaHeader); err != nil {
		return m
	}
	e := binary.NativeEndian
	m.found = e.Uint32(b[0:]) == metaMagic
	m.version, m.page = e.Uint32(b[4:]), e.Uint32(b[8:])
	m.root, m.freelist, m.used, m.txn = e.Uint64(b[16:]), e.Uint64(b[32:]), e.Uint64(b[40:]), e.Uint64(b[48:])
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSumBytes])
	m.whole = m.found && m.version == metaVersion && m.page >= minPage && m.page <= maxPage && sum.Sum64() == e.Uint64(b[metaSumBytes:])
	return m
}

// checkMeta finds out whether a file is one of bbolt and as long as it must be. The caller keeps writers out.
func checkMeta(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	first, second := readMeta(f, 0), metaPage{}
	if first.whole {
		second = readMeta(f, int64(first.page))
	} else {
		// The size of a page stands in the page that is damaged.
		for size := int64(minPage); size <= maxPage && !second.whole; size *= 2 {
			if m := readMeta(f, size); m.found {
				second = m
			}
		}
	}
	m := first
	if !first.whole || second.whole && second.txn > first.txn {
		m = second
	}
	switch {
	case !first.found && !second.found:
		return fmt.Errorf("%w: it is no bbolt file", driver.ErrVersion)
	case !m.whole && max(first.version, second.version) > metaVersion && max(first.version, second.version) < 1<<8:
		return fmt.Errorf("%w: it is a bbolt file of version %d, %d is accepted", driver.ErrVersion, max(first.version, second.version), metaVersion)
	case !m.whole:
		return fmt.Errorf("%w: both of its meta pages are", ErrCorrupt)
	case m.used > uint64(info.Size())/uint64(m.page):
		return fmt.Errorf("%w: it has %d bytes, of %d pages of %d bytes that are in use", ErrCorrupt, info.Size(), m.used, m.page)
	case m.freelist == noFreelist:
		return fmt.Errorf("%w: it is a bbolt file of another program, without a list of free pages", driver.ErrVersion)
	case m.root >= m.used || m.freelist >= m.used:
		return fmt.Errorf("%w: its meta page leads to page %d of %d", ErrCorrupt, max(m.root, m.freelist), m.used)
	}
	return nil
}
