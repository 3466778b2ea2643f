package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// A bbolt file is a tree of pages. bbolt trusts each page that it maps. If a page number is wrong,
// bbolt recurses until the stack overflows. If a length is wrong, it frees millions of pages. If a
// page is both free and in use, it panics while it holds its locks. A checker therefore reads the
// file before bbolt maps it for writing. A file that passes has these properties:
//
//  1. One of the two meta pages is whole, and the file is as long as it says.
//  2. Each page of the tree names its own number and kind, and lies within the pages in use.
//  3. The keys and values of a page lie within the page.
//  4. Keys ascend within a page, and lie within the bounds that the parent page gives.
//  5. Each page is either free, or part of the list of free pages, or reached once from the root.
//
// The checker does not read pages that are neither free nor reached, and does not read values.
// Records have their own checks.
//
// The walk goes level by level, in the order of page numbers, so a disk reads mostly forwards. The
// walk reads each page of the tree once, except for the overflow pages of large bodies. The branch
// pages stay in memory, about a hundredth of the file.
type checker struct {
	file  io.ReaderAt
	meta  metaPage
	taken []uint64 // a bit for each page: free, or reached
	buf   []byte
	first uint64 // page of buf[0]
}

// Page layout, in the byte order of the machine. A header is the page number (8 bytes), the kind
// (2), the number of elements (2) and the number of overflow pages (4). An element of a branch is
// the offset of its key from the element (4), the length of the key (4), and the page (8); one of a
// leaf is its flags, the offset, and the lengths of key and value (4 each). The value of a nested
// bucket begins with its root page and a sequence number (8 each); if the root page is 0, the
// bucket's only page follows.
const (
	pageHeader   = 16
	pageElement  = 16
	bucketHeader = 16

	kindBranch   = 0x01
	kindLeaf     = 0x02
	kindFreelist = 0x10

	leafIsBucket = 0x01
)

// A meta page holds after the page header: magic number, version, page size and flags (4 bytes
// each), the root page and its sequence, the page of the free list, the number of pages in use, the
// transaction, and the FNV-1a hash of all these fields (8 bytes each). The valid meta page is the
// undamaged one with the higher transaction.
const (
	metaSize     = 64
	metaSumBytes = 56
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	noFreelist   = ^uint64(0)
	minPage      = 1 << 10
	maxPage      = 16 << 20
)

// readAheadPages is the number of pages that are read together if the walk needs most of them.
const readAheadPages = 64

// metaPage is the content of a meta page.
type metaPage struct {
	found                     bool // the magic number is there
	version                   uint32
	page                      uint32
	root, freelist, used, txn uint64
	whole                     bool // the hash is right
}

func readMeta(f io.ReaderAt, at int64) (m metaPage) {
	var b [metaSize]byte
	if _, err := f.ReadAt(b[:], at+pageHeader); err != nil {
		return m
	}
	e := binary.NativeEndian
	m.found = e.Uint32(b[0:]) == metaMagic
	m.version, m.page = e.Uint32(b[4:]), e.Uint32(b[8:])
	m.root, m.freelist, m.used, m.txn = e.Uint64(b[16:]), e.Uint64(b[32:]), e.Uint64(b[40:]), e.Uint64(b[48:])
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSumBytes])
	m.whole = m.found && m.version == metaVersion && m.page >= minPage && m.page <= maxPage &&
		sum.Sum64() == e.Uint64(b[metaSumBytes:])
	return m
}

// checkFile returns [ErrCorrupt] for a damaged file, and [driver.ErrVersion] for a file that is not
// a bbolt file or has another version of bbolt. If pages is false, it reads only the meta pages.
// The caller excludes writers. checkFile is O(n) in the pages in use.
func checkFile(path string, pages bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	meta, err := findMeta(f, info.Size())
	if err != nil || !pages {
		return err
	}
	c := &checker{file: f, meta: meta, taken: make([]uint64, meta.used/64+1)}
	c.taken[0] = 3 // the meta pages
	if err := c.freelist(); err != nil {
		return err
	}
	return c.tree()
}

// findMeta returns the valid meta page.
func findMeta(f io.ReaderAt, size int64) (metaPage, error) {
	if size < pageHeader+metaSize {
		return metaPage{}, fmt.Errorf("%w: it has %d bytes, and the smallest file of a store has %d; "+
			"restore it from a backup, or delete it to begin with an empty one", ErrCorrupt, size, 4*minPage)
	}
	first, second := readMeta(f, 0), metaPage{}
	if first.whole {
		second = readMeta(f, int64(first.page))
	} else {
		// The damaged page holds the page size, so try each size.
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
	version := max(first.version, second.version)
	switch {
	case !first.found && !second.found:
		return m, fmt.Errorf("%w: it is not a bbolt file", driver.ErrVersion)
	case !m.whole && version > metaVersion && version < 1<<8:
		return m, fmt.Errorf("%w: it is a bbolt file of version %d; it must be %d",
			driver.ErrVersion, version, metaVersion)
	case !m.whole:
		return m, fmt.Errorf("%w: both of its meta pages are damaged", ErrCorrupt)
	case m.used > uint64(size)/uint64(m.page):
		return m, fmt.Errorf("%w: it has %d bytes, but %d pages of %d bytes each are in use",
			ErrCorrupt, size, m.used, m.page)
	case m.freelist == noFreelist:
		return m, fmt.Errorf("%w: it is a bbolt file of another program, without a list of free pages",
			driver.ErrVersion)
	case m.root < 2 || m.freelist < 2 || m.root >= m.used || m.freelist >= m.used:
		return m, fmt.Errorf("%w: its meta page names root page %d and free list page %d, but %d pages are in use",
			ErrCorrupt, m.root, m.freelist, m.used)
	}
	return m, nil
}

func damagedPage(page uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", ErrCorrupt, page, fmt.Sprintf(format, args...))
}

// take marks pages as taken, and returns an error if one of them is taken already.
func (c *checker) take(page, n uint64) error {
	if page < 2 || page >= c.meta.used || n > c.meta.used-page {
		return damagedPage(page, "%d pages from here do not fit in the %d pages in use",
			n, c.meta.used)
	}
	for p := page; p < page+n; p++ {
		if c.taken[p/64]&(1<<(p%64)) != 0 {
			return damagedPage(p, "it is used twice, or is free and in use")
		}
		c.taken[p/64] |= 1 << (p % 64)
	}
	return nil
}

// header is the first part of a page.
type header struct {
	kind, count int
	bytes       uint64 // of the page with its overflow pages
}

// header checks the header of a page and marks the page.
func (c *checker) header(page uint64, b []byte) (h header, err error) {
	e := binary.NativeEndian
	h.kind, h.count = int(e.Uint16(b[8:])), int(e.Uint16(b[10:]))
	if id := e.Uint64(b); id != page {
		return h, damagedPage(page, "it has the number %d", id)
	}
	pages := uint64(e.Uint32(b[12:])) + 1
	h.bytes = pages * uint64(c.meta.page)
	return h, c.take(page, pages)
}

// read returns n bytes of the file from the start of a page. They are valid until the next call.
func (c *checker) read(page, n uint64) ([]byte, error) {
	size := uint64(c.meta.page)
	if from := (page - c.first) * size; page >= c.first && from+n <= uint64(len(c.buf)) {
		return c.buf[from:], nil
	}
	c.buf = slices.Grow(c.buf[:0], int(n))[:n]
	c.first = page
	if _, err := c.file.ReadAt(c.buf, int64(page*size)); err != nil {
		c.buf = c.buf[:0]
		return nil, fmt.Errorf("page %d: %w", page, err)
	}
	return c.buf, nil
}

// freelist marks the pages that are free.
func (c *checker) freelist() error {
	page := c.meta.freelist
	b, err := c.read(page, uint64(c.meta.page))
	if err != nil {
		return err
	}
	h, err := c.header(page, b)
	if err != nil {
		return err
	}
	if h.kind != kindFreelist {
		return damagedPage(page, "it is not a list of free pages")
	}
	if b, err = c.read(page, h.bytes); err != nil {
		return err
	}
	ids, n := b[pageHeader:h.bytes], uint64(h.count)
	if n == 0xFFFF {
		n = binary.NativeEndian.Uint64(ids)
		ids = ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return damagedPage(page, "its %d free pages do not fit in the page", n)
	}
	for i := range n {
		if err := c.take(binary.NativeEndian.Uint64(ids[8*i:]), 1); err != nil {
			return err
		}
	}
	return nil
}

// child is a page of the tree. Its keys are at least from and less than to; nil means no bound.
type child struct {
	page     uint64
	from, to []byte
}

// tree walks over all pages reached from the root, level by level.
func (c *checker) tree() error {
	level, next := []child{{page: c.meta.root}}, []child(nil)
	for len(level) > 0 {
		slices.SortFunc(level, func(a, b child) int { return cmp.Compare(a.page, b.page) })
		for i := range level {
			if err := c.readAhead(level[i:]); err != nil {
				return err
			}
			if err := c.node(level[i], &next); err != nil {
				return err
			}
		}
		level, next = next, level[:0]
	}
	return nil
}

// readAhead reads the first page of a level, and the pages after it if most of them are needed too.
func (c *checker) readAhead(level []child) error {
	first := level[0].page
	if first >= c.meta.used {
		return damagedPage(first, "the file has %d pages in use", c.meta.used)
	}
	last := first
	for n := 1; n < len(level) && level[n].page < min(first+readAheadPages, last+4, c.meta.used); n++ {
		last = level[n].page
	}
	size := uint64(c.meta.page)
	if first >= c.first && (first-c.first+1)*size <= uint64(len(c.buf)) {
		return nil
	}
	_, err := c.read(first, (last-first+1)*size)
	return err
}

// node checks a page of the tree.
func (c *checker) node(n child, next *[]child) error {
	b, err := c.read(n.page, uint64(c.meta.page))
	if err != nil {
		return err
	}
	h, err := c.header(n.page, b)
	switch {
	case err != nil:
		return err
	case h.kind != kindBranch && h.kind != kindLeaf:
		return damagedPage(n.page, "it is neither branch nor leaf: its kind is %#x", h.kind)
	}
	b = b[:c.meta.page]
	if need := keyBytes(b, h); need > h.bytes {
		return damagedPage(n.page, "its elements do not fit in the page")
	} else if need > uint64(len(b)) {
		if b, err = c.read(n.page, need); err != nil {
			return err
		}
		b = b[:need]
	}
	if h.kind == kindBranch {
		return c.branch(n, slices.Clone(b), h, next)
	}
	return c.leaf(n, b, h, next)
}

// keyBytes returns the number of bytes of a page that hold its elements, keys and buckets. These
// bytes end with the last element of the page, because bbolt writes keys and values in the order of
// the elements.
func keyBytes(b []byte, h header) uint64 {
	end := uint64(pageHeader + h.count*pageElement)
	if h.count == 0 || end > uint64(len(b)) {
		return end
	}
	last, e := end-pageElement, binary.NativeEndian
	u := func(at uint64) uint64 { return uint64(e.Uint32(b[last+at:])) }
	switch {
	case h.kind == kindBranch:
		return max(end, last+u(0)+u(4))
	case u(0) == leafIsBucket:
		return max(end, last+u(4)+u(8)+u(12))
	default:
		return max(end, last+u(4)+u(8))
	}
}

// branch checks the keys of a branch page and adds its children to the next level.
func (c *checker) branch(n child, b []byte, h header, next *[]child) error {
	if h.count == 0 {
		return damagedPage(n.page, "it is a branch without children")
	}
	last, e := n.from, binary.NativeEndian
	for i := range h.count {
		at := pageHeader + i*pageElement
		key, ok := slice(b, at, e.Uint32(b[at:]), e.Uint32(b[at+4:]))
		if !ok || !inOrder(last, key, n.to, i > 0) {
			return damagedPage(n.page, "key %d is out of order", i)
		}
		if i > 0 {
			(*next)[len(*next)-1].to = key
		}
		*next = append(*next, child{e.Uint64(b[at+8:]), key, n.to})
		last = key
	}
	return nil
}

// leaf checks the keys and values of a leaf page and adds the roots of nested buckets to the next
// level.
func (c *checker) leaf(n child, b []byte, h header, next *[]child) error {
	last, e := n.from, binary.NativeEndian
	for i := range h.count {
		at := pageHeader + i*pageElement
		offset, keyLen, valueLen := e.Uint32(b[at+4:]), e.Uint32(b[at+8:]), e.Uint32(b[at+12:])
		key, ok := slice(b, at, offset, keyLen)
		end := uint64(at) + uint64(offset) + uint64(keyLen) + uint64(valueLen)
		if !ok || end > h.bytes || !inOrder(last, key, n.to, i > 0) {
			return damagedPage(n.page, "key %d is out of order, or its value does not fit", i)
		}
		last = key
		switch flags := e.Uint32(b[at:]); flags {
		case 0:
		case leafIsBucket:
			from := uint64(at) + uint64(offset) + uint64(keyLen)
			if from+uint64(valueLen) > uint64(len(b)) {
				return damagedPage(n.page, "bucket %d does not fit", i)
			}
			if err := c.bucket(n, b[from:][:valueLen], next); err != nil {
				return err
			}
		default:
			return damagedPage(n.page, "key %d has the flags %#x", i, flags)
		}
	}
	return nil
}

// bucket checks the value of a nested bucket.
func (c *checker) bucket(n child, b []byte, next *[]child) error {
	if len(b) < bucketHeader {
		return damagedPage(n.page, "a bucket has %d bytes", len(b))
	}
	e := binary.NativeEndian
	if root := e.Uint64(b); root != 0 {
		*next = append(*next, child{page: root})
		return nil
	}
	if b = b[bucketHeader:]; len(b) < pageHeader {
		return damagedPage(n.page, "the page of a small bucket has %d bytes", len(b))
	}
	h := header{kind: int(e.Uint16(b[8:])), count: int(e.Uint16(b[10:])), bytes: uint64(len(b))}
	if h.kind != kindLeaf || keyBytes(b, h) > h.bytes {
		return damagedPage(n.page, "the page of a small bucket is not a leaf, or is too short")
	}
	return c.leaf(child{page: n.page}, b, h, next)
}

// slice returns the bytes of a key, or false if they do not fit in the page.
func slice(b []byte, element int, offset, length uint32) ([]byte, bool) {
	from := uint64(element) + uint64(offset)
	to := from + uint64(length)
	if length == 0 || to > uint64(len(b)) {
		return nil, false
	}
	return b[from:to], true
}

// inOrder reports whether a key is before end and not before last. If strict is true, the key must
// not equal last.
func inOrder(last, key, end []byte, strict bool) bool {
	order := bytes.Compare(last, key)
	return (order < 0 || order == 0 && !strict) && (end == nil || bytes.Compare(key, end) < 0)
}
