package sampling

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Profile collects the samples of pending timers and encodes them in the format of pprof
// (profile.proto of github.com/google/pprof). A profile of package runtime/pprof would have the
// stack of the caller of Add and no labels.
type Profile struct {
	library string // package path
	wheel   string // the label of each sample; may be empty
	rate    uint64

	counts map[string]uint64 // timers by their common sample, which is encoded without its value

	locations map[uintptr]uint64 // numbers
	texts     map[string]uint64  // numbers
	tables    message            // encoded locations, functions and texts
}

// NewProfile returns an empty profile of samples that each stand for rate timers. library is the
// path of the package whose frames are omitted if a frame of its caller is known. wheel is the
// label of all samples.
func NewProfile(library, wheel string, rate int) *Profile {
	p := &Profile{library: library, wheel: wheel, rate: uint64(rate), counts: map[string]uint64{}}
	p.locations, p.texts = map[uintptr]uint64{}, map[string]uint64{}
	p.text("") // has the number 0
	return p
}

// Add adds a sample of a timer that was armed age ns ago and expires in expires ns.
func (p *Profile) Add(o *Origin, age, expires int64) {
	sample := message{}.bytes(1, p.locate(o.PCs)).bytes(3, p.duration("age", age)).bytes(3, p.duration("expires", expires))
	if p.wheel != "" {
		sample = sample.bytes(3, message{}.number(1, p.text("wheel")).number(2, p.text(p.wheel)))
	}
	p.counts[string(sample)] += p.rate
}

// duration returns a label with a duration, which is rounded so that many timers have it.
func (p *Profile) duration(key string, ns int64) message {
	return message{}.number(1, p.text(key)).number(3, uint64(twoDigits(ns))).number(4, p.text("nanoseconds"))
}

// twoDigits rounds towards zero to two decimal digits.
func twoDigits(ns int64) int64 {
	unit := int64(1)
	for v := ns; v <= -100 || v >= 100; v /= 10 {
		unit *= 10
	}
	return ns / unit * unit
}

// locate returns the locations of a stack, beginning with the function that called the library. A
// stack has no such function after a go statement with a method of the library.
func (p *Profile) locate(pcs []uintptr) (all message) {
	outside := -1
	frames := runtime.CallersFrames(pcs)
	for more := len(pcs) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.PC == 0 || f.Function == "runtime.goexit" {
			continue
		}
		if outside < 0 && !p.inside(f.Function) {
			outside = len(all)
		}
		all = binary.AppendUvarint(all, p.location(&f))
	}
	return all[max(0, outside):]
}

// inside reports whether a function belongs to the root package, to package keyed, or to the map
// that calls functions of keyed.
func (p *Profile) inside(name string) bool {
	if strings.HasPrefix(name, "github.com/puzpuzpuz/xsync/") {
		return true
	}
	name, ok := strings.CutPrefix(name, p.library)
	return ok && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/keyed."))
}

// location returns the number of the location of a frame. An inlined frame has a PC of its own too.
// Each location has a function of the same number. Readers merge functions of the same name.
func (p *Profile) location(f *runtime.Frame) uint64 {
	n, known := p.locations[f.PC]
	if !known {
		n = uint64(len(p.locations) + 1)
		p.locations[f.PC] = n
		line := message{}.number(1, n).number(2, uint64(f.Line))
		name, file := p.text(f.Function), p.text(f.File)
		p.tables = p.tables.bytes(4, message{}.number(1, n).number(2, 1).number(3, uint64(f.PC)).bytes(4, line)).
			bytes(5, message{}.number(1, n).number(2, name).number(3, name).number(4, file))
	}
	return n
}

func (p *Profile) text(s string) uint64 {
	n, known := p.texts[s]
	if !known {
		n = uint64(len(p.texts))
		p.texts[s] = n
		p.tables = p.tables.bytes(6, message(s))
	}
	return n
}

func (p *Profile) Write(w io.Writer) error {
	valueType := message{}.number(1, p.text("timers")).number(2, p.text("count"))
	out := message{}.bytes(1, valueType)
	for _, sample := range slices.Sorted(maps.Keys(p.counts)) { // always in the same order
		out = out.bytes(2, message(sample).number(2, p.counts[sample]))
	}
	// The flags say that functions, files and lines are known, so pprof does not look for a binary.
	out = out.bytes(3, message{}.number(1, 1).number(7, 1).number(8, 1).number(9, 1).number(10, 1))
	out = append(out, p.tables...)
	out = out.number(9, uint64(time.Now().UnixNano())).bytes(11, valueType).number(12, p.rate)
	z := gzip.NewWriter(w)
	if _, err := z.Write(out); err != nil {
		return err
	}
	return z.Close()
}

// message is an encoded Protocol Buffers message. Its methods append a field.
type message []byte

func (m message) number(field, v uint64) message {
	return binary.AppendUvarint(binary.AppendUvarint(m, field<<3), v)
}

func (m message) bytes(field uint64, b message) message {
	m = binary.AppendUvarint(binary.AppendUvarint(m, field<<3|2), uint64(len(b)))
	return append(m, b...)
}
