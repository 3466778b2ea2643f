package wheeldebug

import (
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/internal/figures"
	"github.com/timingwheel-go/timingwheel/internal/survey"
	"github.com/timingwheel-go/timingwheel/internal/webpage"
)

// Schema is the version of the JSON. A version may gain fields. A change that renames or removes a
// field, or gives it another meaning, comes with a new version.
const Schema = 1

// Document is the JSON of the page: the list of wheels, and the requested wheel. Durations are in
// nanoseconds, and their names end in _ns. Times are in RFC 3339. Most other numbers are counts.
type Document struct {
	Schema int     `json:"schema"`          // [Schema]
	Error  string  `json:"error,omitempty"` // with status 404: no wheel has the requested name
	Wheels []Entry `json:"wheels"`          // in the order of [Handler.Add]
	Wheel  *Wheel  `json:"wheel"`           // the requested wheel, or null if there is none
}

// Entry is a wheel in the list of a [Document].
type Entry struct {
	Name    string `json:"name"`
	Pending int    `json:"pending"` // timers
}

// Wheel is a snapshot of one wheel. Requests share a Wheel for half a second, or longer if reading
// the wheel takes long.
type Wheel struct {
	Name    string    `json:"name"`
	Taken   time.Time `json:"taken"` // when the wheel was read, on the wall clock
	Now     time.Time `json:"now"`   // on the wheel's own clock
	Stopped bool      `json:"stopped"`

	TickNs    int64 `json:"tick_ns"`
	WheelSize int   `json:"wheel_size"` // slots in each level
	Shards    int   `json:"shards"`

	Pending int `json:"pending"` // pending timers: due, moving, unseen and the timers in all levels
	Due     int `json:"due"`     // timers that are due and not claimed
	Moving  int `json:"moving"`  // timers that are moving to a finer level
	Unseen  int `json:"unseen"`  // timers that moved while the wheel was read

	OverdueNs int64 `json:"overdue_ns"` // time since the earliest deadline among the due timers

	// Counters has the fields of [timingwheel.Stats] that never decrease, with names in snake case.
	Counters map[string]uint64 `json:"counters"`
	Running  int               `json:"running"` // callbacks, or batches, that are running
	Expired  int               `json:"expired"` // entries in a keyed.Map that are waiting to be reported
	Buckets  int               `json:"buckets"` // buckets with timers
	Bytes    uint64            `json:"bytes"`   // memory held for timers, payloads, buckets and slots

	Levels   []Level      `json:"levels"` // from the finest to the coarsest
	Next     []Expiration `json:"next"`   // the earliest expirations, at most 16
	Lateness Lateness     `json:"lateness"`
}

// Level is one level of a wheel, summed over all shards.
type Level struct {
	SlotNs       int64 `json:"slot_ns"`        // duration of a slot
	Hand         int   `json:"hand"`           // the slot that contains the current time
	Timers       int   `json:"timers"`         // the sum of Cells
	Later        int   `json:"later"`          // in the last level, timers for later rounds
	SlotsPerCell int   `json:"slots_per_cell"` // 1, unless the level has more than 512 slots
	Cells        []int `json:"cells"`          // timers in each cell, beginning at the hand
}

// Expiration is one of the buckets that expire next. Timers in a level 0 bucket then run, and
// timers in other levels move to a finer level.
type Expiration struct {
	At     time.Time `json:"at"`    // on the wheel's clock
	InNs   int64     `json:"in_ns"` // time until At; negative if the bucket is overdue
	Level  int       `json:"level"`
	Timers int       `json:"timers"`
}

// Lateness is the distribution of the time from a timer's deadline to the beginning of the batch in
// which the timer was claimed: see [timingwheel.Stats].
type Lateness struct {
	Count   uint64   `json:"count"`
	P50Ns   int64    `json:"p50_ns"` // quantiles are upper bounds that are at most 25% too high
	P90Ns   int64    `json:"p90_ns"`
	P99Ns   int64    `json:"p99_ns"`
	P999Ns  int64    `json:"p999_ns"`
	MaxNs   int64    `json:"max_ns"`
	Buckets []Bucket `json:"buckets"` // the non-empty buckets in ascending order
}

// Bucket counts the timers that were late by at least FromNs and less than ToNs. In the last
// possible bucket, ToNs is the largest duration.
type Bucket struct {
	FromNs int64  `json:"from_ns"`
	ToNs   int64  `json:"to_ns"`
	Count  uint64 `json:"count"`
}

// snapshot reads all figures of a wheel.
func snapshot(name string, source Source) *Wheel {
	st, o := source.Stats(), survey.Take(source)
	w := &Wheel{
		Name: name, Taken: time.Now(), Now: o.Now, Stopped: o.Stopped,
		TickNs: int64(st.Tick), WheelSize: o.WheelSize, Shards: st.Shards,
		Pending: o.Pending, Due: o.Due, Moving: o.Moving, Unseen: o.Unseen,
		OverdueNs: int64(st.Overdue),
		Counters:  counters(&st),
		Running:   st.Running, Expired: st.Expired, Buckets: st.Buckets, Bytes: st.Bytes,
		Levels:   make([]Level, len(o.Levels)),
		Next:     make([]Expiration, len(o.Next)),
		Lateness: latenessOf(&st.Lateness),
	}
	for i, l := range o.Levels {
		w.Levels[i] = Level{
			SlotNs: int64(l.Interval), Hand: l.Hand, Timers: l.Timers, Later: l.Later,
			SlotsPerCell: o.WheelSize / len(l.Cells), Cells: l.Cells,
		}
	}
	for i, x := range o.Next {
		w.Next[i] = Expiration{At: x.At, InNs: int64(x.At.Sub(o.Now)), Level: x.Level, Timers: x.Timers}
	}
	return w
}

// counters returns the numbers of st that are counters.
func counters(st *timingwheel.Stats) map[string]uint64 {
	all := map[string]uint64{}
	for m, v := range figures.Numbers(st) {
		if m.Kind == figures.Counter {
			all[m.Key()] = v.(uint64)
		}
	}
	return all
}

func init() {
	webpage.LatenessOf = func(h *timingwheel.Histogram) any { return latenessOf(h) }
}

func latenessOf(h *timingwheel.Histogram) Lateness {
	l := Lateness{
		Count:   h.Count(),
		P50Ns:   int64(h.Quantile(0.5)),
		P90Ns:   int64(h.Quantile(0.9)),
		P99Ns:   int64(h.Quantile(0.99)),
		P999Ns:  int64(h.Quantile(0.999)),
		MaxNs:   int64(h.Max),
		Buckets: []Bucket{},
	}
	from := time.Duration(0)
	for i, n := range h.Counts {
		to := h.Bound(i)
		if n > 0 {
			l.Buckets = append(l.Buckets, Bucket{int64(from), int64(to), n})
		}
		from = to
	}
	return l
}
