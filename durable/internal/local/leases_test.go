package local

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// failingDisk runs calls on a Map, of which only what a sync has copied survives a failure.
type failingDisk struct {
	t       *testing.T
	shared  Shared
	now     time.Time
	db      *Map
	durable *Map
	direct
	b driver.Backend
}

func newFailingDisk(t *testing.T) *failingDisk {
	t.Helper()
	d := &failingDisk{t: t, db: new(Map), now: time.Unix(1_700_000_000, 0)}
	d.shared = Shared{Name: "test", Now: func() time.Time { return d.now }}
	d.load(nil)
	var err error
	d.b, err = NewStore(d, &d.shared).Open(t.Context(), driver.Config{Queue: "q", Partitions: 1, DeadLimit: 10, DeadBytes: 1 << 20, DeadAge: time.Hour})
	require.NoError(t, err)
	d.sync()
	return d
}

func (d *failingDisk) load(last *State) {
	var err error
	d.s, err = Load(d.db, &d.shared, last)
	require.NoError(d.t, err)
	d.s.Flush()
}

func copyOf(m *Map) *Map {
	c := new(Map)
	_ = m.Scan(nil, bytes.Repeat([]byte{255}, 8), func(key, value []byte) bool {
		c.Set(key, value)
		return true
	})
	return c
}

func (d *failingDisk) sync() {
	d.s.Synced(d.s.Flush())
	d.durable = copyOf(d.db)
}

// fail loses the changes since the last sync. The disk can be read again at the second attempt.
func (d *failingDisk) fail() {
	_, err := Load(copyOf(d.durable), &d.shared, d.s)
	require.NoError(d.t, err)
	d.db = copyOf(d.durable)
	d.load(d.s)
	d.sync()
}

func (d *failingDisk) put(id string, at driver.Instant) {
	statuses, err := d.b.Put(d.t.Context(), driver.Put{Items: []driver.PutItem{{ID: id, At: at}}})
	require.NoError(d.t, err)
	require.Equal(d.t, driver.StatusDone, statuses[0])
}

// claim begins the only message, or leases it if it is not due.
func (d *failingDisk) claim() driver.Record {
	claimed, err := d.b.Claim(d.t.Context(), driver.Claim{Horizon: time.Minute, Max: 1, Begin: 1, Visibility: time.Second, MaxCrashes: 3})
	require.NoError(d.t, err)
	require.Len(d.t, claimed.Records, 1)
	return claimed.Records[0]
}

func (d *failingDisk) apply(op driver.Op, r driver.Record) driver.Status {
	outcomes, err := d.b.Apply(d.t.Context(), driver.Batch{Op: op, Changes: []driver.Change{{ID: r.ID, Token: r.Token}}})
	require.NoError(d.t, err)
	return outcomes[0].Status
}

func (d *failingDisk) get(id string) driver.Record {
	r, err := d.b.Get(d.t.Context(), 0, id)
	require.NoError(d.t, err)
	return r
}

func TestReleasedMessageStaysReleasedAfterAFailure(t *testing.T) {
	t.Parallel()
	d := newFailingDisk(t)
	d.put("a", 0)
	first := d.claim()
	d.sync()
	require.Equal(t, driver.StatusDone, d.apply(driver.OpRelease, first))
	d.sync()
	d.now = d.now.Add(20 * time.Second) // the next token is beyond the reservation
	d.claim()
	d.fail()
	assert.Equal(t, driver.StateScheduled, d.get("a").State)
	assert.Zero(t, d.claim().Crashes, "only the claim is lost")
}

func TestLastLeaseIsKeptAfterAFailure(t *testing.T) {
	t.Parallel()
	d := newFailingDisk(t)
	d.put("a", 0)
	d.claim()
	d.sync()
	d.now = d.now.Add(time.Second)
	second := d.claim()
	require.Equal(t, 1, second.Crashes, "the first lease has expired")
	require.Equal(t, driver.StatusDone, d.apply(driver.OpAck, second))
	d.fail()
	for range 10 {
		d.sync()
	}
	d.fail()
	r := d.get("a")
	assert.Equal(t, driver.StateFiring, r.State)
	assert.Equal(t, second.Token, r.Token)
	assert.Equal(t, driver.StatusDone, d.apply(driver.OpAck, second))
}

// A message has the id and the due time of one that was acknowledged or cancelled.
func TestLeaseDoesNotMoveToAnotherMessage(t *testing.T) {
	t.Parallel()
	for op, later := range map[driver.Op]time.Duration{driver.OpAck: -2 * time.Second, driver.OpCancel: time.Second} {
		for _, durable := range []bool{true, false} {
			d := newFailingDisk(t)
			due := transition.Floor(d.now)
			if op == driver.OpCancel {
				due = due.Add(10 * time.Second)
			}
			d.put("a", due)
			d.now = d.now.Add(time.Second)
			first := d.claim()
			d.sync()
			require.Equal(t, driver.StatusDone, d.apply(op, first))
			if durable {
				d.sync()
			}
			d.now = d.now.Add(later) // the new one gets the same due time
			d.put("a", due)
			d.durable = copyOf(d.db)
			d.fail()
			assert.Equal(t, driver.StateScheduled, d.get("a").State)
			assert.Equal(t, driver.StatusLeaseLost, d.apply(driver.OpRelease, first))
		}
	}
}

// A lease outlasts a failure that loses the replacement or the mark of its message.
func TestLeaseOfAChangedMessageIsKeptAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{0, 2 * time.Second} {
		for _, durable := range []bool{true, false} {
			d := newFailingDisk(t)
			first := driver.PutItem{ID: "a", Repeat: "daily", Body: []byte("first")}
			second := driver.PutItem{ID: "a", Repeat: "weekly", Body: []byte("second"), Delay: time.Hour}
			replace := func(item driver.PutItem) {
				statuses, err := d.b.Put(t.Context(), driver.Put{Replace: true, Items: []driver.PutItem{item}})
				require.NoError(t, err)
				require.Equal(t, driver.StatusDone, statuses[0])
			}
			replace(first)
			d.now = d.now.Add(time.Second)
			r := d.claim()
			d.sync()
			d.now = d.now.Add(time.Second - back)
			replace(second)
			if durable {
				d.sync()
			}
			d.fail()
			want := first
			if durable {
				want = second
			}
			got := d.get("a")
			assert.Equal(t, []any{driver.StateFiring, r.Token, want.Repeat, string(want.Body)}, []any{got.State, got.Token, got.Repeat, string(got.Body)})

			_, err := d.b.Apply(t.Context(), driver.Batch{Op: driver.OpCancel, Changes: []driver.Change{{ID: "a", Interrupt: true}}})
			require.NoError(t, err)
			status := driver.StatusDone
			if durable {
				d.sync()
				status = driver.StatusInterrupted
			}
			d.fail()
			assert.Equal(t, status, d.apply(driver.OpExtend, r))
			d.audit()
			assert.Equal(t, driver.StatusDone, d.apply(driver.OpRelease, r))
			d.audit()
			_, err = d.b.Get(t.Context(), 0, "a")
			assert.Equal(t, durable, errors.Is(err, driver.ErrNotFound))
		}
	}
}

func (d *failingDisk) audit() {
	report, err := d.b.(driver.Auditor).Audit(d.t.Context(), 0, false)
	require.NoError(d.t, err)
	report.Records = 0
	require.Zero(d.t, report)
}
