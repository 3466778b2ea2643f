package local

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// direct runs calls without a lock.
type direct struct{ s *State }

func (d direct) Run(_ context.Context, call *Call) error { return call.Do(d.s) }

// A fault of each kind is found: verify does not pass whatever it is shown.
func TestVerifyFindsEachFault(t *testing.T) {
	t.Parallel()
	faults := map[string]func(p *partition, db *Map){
		"no place":             func(p *partition, db *Map) { db.Delete(p.table.indexKey("a")) },
		"no record":            func(p *partition, db *Map) { db.Delete(p.table.timeKey(kindScheduled, p.mustFind("a").key)) },
		"another place":        func(p *partition, db *Map) { p.table.set(&record{msg: driver.Record{ID: "a", Due: 7}}) },
		"no span":              func(p *partition, db *Map) { db.Delete(p.table.spanKey(spanOf(p.mustFind("a").at))) },
		"a note of none":       func(p *partition, db *Map) { db.Set(p.table.begunKey("a"), nil) },
		"a lease of none":      func(p *partition, _ *Map) { p.lease(&lease{key: key{1, "none"}}) },
		"count of records":     func(p *partition, _ *Map) { p.counters.Records++ },
		"count of dead":        func(p *partition, _ *Map) { p.counters.Dead++ },
		"bytes of dead":        func(p *partition, _ *Map) { p.counters.DeadBytes-- },
		"count of due":         func(p *partition, _ *Map) { p.due.n++ },
		"greatest id":          func(p *partition, _ *Map) { p.counters.maxID = "a" },
		"head":                 func(p *partition, _ *Map) { p.frontier.head++ },
		"front beyond a key":   func(p *partition, _ *Map) { p.frontier.front = key{at: driver.Never} },
		"oldest dead too late": func(p *partition, _ *Map) { p.oldestDead = driver.Never },
		"a series without a run": func(p *partition, _ *Map) {
			p.mustChange("a", func(r *driver.Record) { r.Repeat = "daily" })
		},
		"an unnoticed mark": func(p *partition, _ *Map) {
			p.lease(&lease{key: p.mustFind("a").key})
			_ = p.findHead(nil)
			p.mustChange("a", func(r *driver.Record) { r.Planned = driver.Never })
		},
		"an unreadable record": func(p *partition, db *Map) {
			db.Set(p.table.timeKey(kindScheduled, p.mustFind("a").key), []byte{FormatVersion + 1})
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := new(Map)
			s, b := openTest(t, db, time.Now)
			_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "dead", Body: []byte("1")}}})
			require.NoError(t, err)
			claimed, err := b.Claim(t.Context(), driver.Claim{Max: 1, Begin: 1, MaxBytes: 1, Visibility: time.Hour})
			require.NoError(t, err)
			require.Len(t, claimed.Records, 1)
			_, err = b.Apply(t.Context(), driver.Batch{Op: driver.OpBury,
				Changes: []driver.Change{{ID: "dead", Token: claimed.Records[0].Token}}})
			require.NoError(t, err)
			_, err = b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}, {ID: "b", Delay: time.Hour}}})
			require.NoError(t, err)
			p := s.queues["q"].partitions[0]
			report, err := p.verify()
			require.NoError(t, err)
			require.Equal(t, driver.AuditReport{Records: 3}, report)
			fault(p, db)
			report, err = p.verify()
			require.NoError(t, err)
			assert.Positive(t, report.Orphans+report.Strays+report.Wrong+report.Unreadable, "%+v", report)
		})
	}
}

func (p *partition) mustFind(id string) place {
	at, err := p.table.find(id)
	if err != nil {
		panic(err)
	}
	return at
}

// mustChange changes the record of a message in its place.
func (p *partition) mustChange(id string, change func(*driver.Record)) {
	r, err := p.table.read(p.mustFind(id))
	if err != nil {
		panic(err)
	}
	change(&r.msg)
	p.table.set(r)
}

// unreadableIndex is a map whose index cannot be read for a moment.
type unreadableIndex struct{ *Map }

var errRead = errors.New("too many open files")

func (u unreadableIndex) Get(key []byte) ([]byte, error) {
	if len(key) > 5 && key[0] == 1 && key[5] == kindIndex {
		return nil, errRead
	}
	return u.Map.Get(key)
}

// An error of a read is no fault of the data.
func TestAuditReturnsErrorsOfReads(t *testing.T) {
	t.Parallel()
	db := new(Map)
	_, b := openTest(t, db, time.Now)
	_, err := b.Put(t.Context(), driver.Put{Items: []driver.PutItem{{ID: "a"}}})
	require.NoError(t, err)
	_, b = openTest(t, unreadableIndex{db}, time.Now)
	_, err = b.(driver.Auditor).Audit(t.Context(), 0, false)
	require.ErrorIs(t, err, errRead)
}
