package sampling

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"time"
)

// Profile collects the samples of pending timers and encodes them in the format of pprof
// (profile.proto of github.com/google/pprof). Package runtime/pprof does not fit: a profile of
// pprof.NewProfile has the stack of the call of Add and no labels, and each value must be removed
// when it ends.
type Profile struct {
	library string // package path
	wheel   string // the label of each sample; may be empty
	rate    int64
	counts  map[group]int64
	groups  []group // in the order of their first samples
	stacks  map[string]int
	frames  [][]uint64 // the locations of each stack
	table   symbols
}

// group identifies a sample of the profile. It has the common properties of its timers.
type group struct {
	stack        int
	age, expires int64 // ns, rounded to two digits
}

// NewProfile returns an empty profile of samples that each stand for rate timers. library is the
// path of the package whose frames are omitted if a frame of its caller is known. wheel is the
// label of all samples.
func NewProfile(library, wheel string, rate int) *Profile {
	p := &Profile{library: library, wheel: wheel, rate: int64(rate), counts: map[group]int64{}, stacks: map[string]int{}}
	p.table = symbols{strings: map[string]uint64{}, functions: map[function]uint64{}, locations: map[uintptr]uint64{}}
	p.table.text("")
	return p
}

// Add adds a sample of a timer that was armed age ns ago and expires in expires ns.
func (p *Profile) Add(o *Origin, age, expires int64) {
	key := make([]byte, 0, 8*maxDepth)
	for _, pc := range o.PCs {
		key = binary.NativeEndian.AppendUint64(key, uint64(pc))
	}
	stack, known := p.stacks[string(key)]
	if !known {
		stack = len(p.frames)
		p.stacks[string(key)] = stack
		p.frames = append(p.frames, p.locate(o.PCs))
	}
	g := group{stack, twoDigits(age), twoDigits(expires)}
	if _, known := p.counts[g]; !known {
		p.groups = append(p.groups, g)
	}
	p.counts[g] += p.rate
}

// twoDigits rounds towards zero to two decimal digits, so that the timers of a stack form groups.
func twoDigits(ns int64) int64 {
	unit := int64(1)
	for v := ns; v <= -100 || v >= 100; v /= 10 {
		unit *= 10
	}
	return ns / unit * unit
}

// locate returns the locations of a stack. The first one is that of the function that called the
// library.
func (p *Profile) locate(pcs []uintptr) []uint64 {
	var all, outside []uint64
	frames := runtime.CallersFrames(pcs)
	for more := len(pcs) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.PC == 0 || f.Function == "runtime.goexit" {
			continue
		}
		at := p.table.location(&f)
		all = append(all, at)
		if len(outside) > 0 || !p.inside(f.Function) {
			outside = append(outside, at)
		}
	}
	if len(outside) == 0 { // for example after a go statement with a method of the library
		return all
	}
	return outside
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

// Write writes the compressed profile to w.
func (p *Profile) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	if _, err := z.Write(p.encode()); err != nil {
		return err
	}
	return z.Close()
}

func (p *Profile) encode() []byte {
	var out message
	t := &p.table
	valueType := message{}.number(1, t.text("timers")).number(2, t.text("count"))
	out = out.bytes(1, valueType)
	for _, g := range p.groups {
		s := message{}.packed(1, p.frames[g.stack]).packed(2, []uint64{uint64(p.counts[g])})
		s = s.bytes(3, t.duration("age", g.age)).bytes(3, t.duration("expires", g.expires))
		if p.wheel != "" {
			s = s.bytes(3, message{}.number(1, t.text("wheel")).number(2, t.text(p.wheel)))
		}
		out = out.bytes(2, s)
	}
	// The flags say that functions, files and lines are known, so pprof does not look for a binary.
	out = out.bytes(3, message{}.number(1, 1).number(7, 1).number(8, 1).number(9, 1).number(10, 1))
	out = append(out, t.encoded...)
	for _, s := range t.ordered {
		out = out.bytes(6, message(s))
	}
	out = out.number(9, uint64(time.Now().UnixNano()))
	return out.bytes(11, valueType).number(12, uint64(p.rate))
}

// symbols has the tables of a profile: the numbers of strings, functions and locations.
type symbols struct {
	strings   map[string]uint64
	ordered   []string
	functions map[function]uint64
	locations map[uintptr]uint64
	encoded   message // functions and locations
}

type function struct{ name, file uint64 }

func (t *symbols) text(s string) uint64 {
	n, ok := t.strings[s]
	if !ok {
		n = uint64(len(t.ordered))
		t.strings[s] = n
		t.ordered = append(t.ordered, s)
	}
	return n
}

// duration returns an encoded label with a duration.
func (t *symbols) duration(key string, ns int64) message {
	return message{}.number(1, t.text(key)).number(3, uint64(ns)).number(4, t.text("nanoseconds"))
}

// location returns the number of the location of a frame. An inlined frame has a PC of its own too.
func (t *symbols) location(f *runtime.Frame) uint64 {
	n, ok := t.locations[f.PC]
	if !ok {
		n = uint64(len(t.locations) + 1)
		t.locations[f.PC] = n
		line := message{}.number(1, t.function(f)).number(2, uint64(f.Line))
		t.encoded = t.encoded.bytes(4, message{}.number(1, n).number(2, 1).number(3, uint64(f.PC)).bytes(4, line))
	}
	return n
}

func (t *symbols) function(f *runtime.Frame) uint64 {
	key := function{t.text(f.Function), t.text(f.File)}
	n, ok := t.functions[key]
	if !ok {
		n = uint64(len(t.functions) + 1)
		t.functions[key] = n
		t.encoded = t.encoded.bytes(5, message{}.number(1, n).number(2, key.name).number(3, key.name).number(4, key.file))
	}
	return n
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

func (m message) packed(field uint64, numbers []uint64) message {
	var b message
	for _, v := range numbers {
		b = binary.AppendUvarint(b, v)
	}
	return m.bytes(field, b)
}
