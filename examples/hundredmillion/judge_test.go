package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

// faultless is the evidence of a run of 1,000 timers of which 100 expired, 50 were stopped, 200
// beaten.
func faultless() evidence {
	var sum checksum
	for id := range uint64(100) {
		sum.add(id)
	}
	st := timingwheel.Stats{Armed: 1000, Fired: 100, Stopped: 50, Postponed: 200, Pending: 850}
	st.Lateness.Counts[3] = 100
	return evidence{
		n: 1000, complete: true, got: tallied{checksum: sum}, comparison: comparison{want: sum},
		beat: 200, stopped: 50, stats: st, length: 850,
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	assert.Empty(t, faultless().faults())
	for name, tt := range map[string]struct {
		change func(*evidence)
		want   string
		always bool // is a fault also where the run was interrupted
	}{
		"lost":          {func(ev *evidence) { ev.comparison.lost.add(7) }, "1 timer did not expire and should have, number 7 is one", false},
		"wrong":         {func(ev *evidence) { ev.comparison.wrong.add(7) }, "1 timer expired and should not have, number 7", false},
		"twice":         {func(ev *evidence) { ev.got.twice.add(7) }, "1 timer expired more than once, number 7", true},
		"unknown":       {func(ev *evidence) { ev.got.unknown.add(1007) }, "1 timer expired that nobody had armed, number 1007", true},
		"refused early": {func(ev *evidence) { ev.refusedEarly = 2 }, "2 beats or stops refused before the deadline", true},
		"early": {func(ev *evidence) {
			ev.got.early.add(7)
			ev.got.earliest = time.Millisecond
		}, "1 timer expired early, by up to 1ms, number 7", true},
		"count":                     {func(ev *evidence) { ev.got.count++ }, "count and checksums", false},
		"sum":                       {func(ev *evidence) { ev.got.sum++ }, "count and checksums", false},
		"xor":                       {func(ev *evidence) { ev.got.xor ^= 1 }, "count and checksums", false},
		"Len":                       {func(ev *evidence) { ev.length-- }, "Len is 849 at the end, and should be 850", false},
		"Stats.Armed":               {func(ev *evidence) { ev.stats.Armed-- }, "Stats.Armed is 999, and should be 1000", false},
		"Stats.Fired":               {func(ev *evidence) { ev.stats.Fired++ }, "Stats.Fired is 101, and should be 100", false},
		"Stats.Stopped":             {func(ev *evidence) { ev.stats.Stopped++ }, "Stats.Stopped is 51, and should be 50", false},
		"Stats.Postponed":           {func(ev *evidence) { ev.stats.Postponed-- }, "Stats.Postponed is 199, and should be 200", false},
		"Stats.Postponed, too many": {func(ev *evidence) { ev.stats.Postponed++ }, "Stats.Postponed is 201, and should be 200", false},
		"Stats.Pending":             {func(ev *evidence) { ev.stats.Pending++ }, "Stats.Pending is 851, and should be 850", false},
		"Stats.Lateness":            {func(ev *evidence) { ev.stats.Lateness.Counts[3]-- }, "Stats.Lateness.Count is 99, and should be 100", false},
	} {
		ev := faultless()
		tt.change(&ev)
		faults := ev.faults()
		require.Len(t, faults, 1, name)
		assert.Contains(t, faults[0], tt.want, name)
		ev.overran = true
		assert.Equal(t, name != "Stats.Postponed", len(ev.faults()) == 1, name)
		ev.complete = false
		assert.Equal(t, tt.always, len(ev.faults()) == 1, name)
	}
}

// What has expired is compared number by number with the plan.
func TestCompare(t *testing.T) {
	t.Parallel()
	const n = 1000
	p := testPlan(1)
	ids := map[fate][]uint64{}
	for id := range uint64(n) {
		f, _ := p.of(id)
		ids[f] = append(ids[f], id)
	}
	for name, tt := range map[string]struct {
		expired     func() []uint64
		refused     []uint64
		lost, wrong tallyOf
	}{
		"right":             {func() []uint64 { return ids[expires] }, nil, tallyOf{}, tallyOf{}},
		"one lost":          {func() []uint64 { return ids[expires][1:] }, nil, tallyOf{1, ids[expires][0]}, tallyOf{}},
		"one that stays":    {func() []uint64 { return append(ids[expires], ids[stays][0]) }, nil, tallyOf{}, tallyOf{1, ids[stays][0]}},
		"one beaten":        {func() []uint64 { return append(ids[expires], ids[beaten][0]) }, nil, tallyOf{}, tallyOf{1, ids[beaten][0]}},
		"one stopped":       {func() []uint64 { return append(ids[expires], ids[stopped][0]) }, nil, tallyOf{}, tallyOf{1, ids[stopped][0]}},
		"one beaten late":   {func() []uint64 { return append(ids[expires], ids[beaten][0]) }, ids[beaten][:1], tallyOf{}, tallyOf{}},
		"the same, not out": {func() []uint64 { return ids[expires] }, ids[beaten][:1], tallyOf{1, ids[beaten][0]}, tallyOf{}},
		"one for another": {func() []uint64 { return append(ids[expires][1:], ids[stays][0]) }, nil,
			tallyOf{1, ids[expires][0]}, tallyOf{1, ids[stays][0]}},
	} {
		pop := &population{plan: p, n: n, refused: newBitmap(n)}
		pop.tally = newTally(&pop.plan, time.Now(), n)
		for _, id := range tt.expired() {
			pop.tally.expireAt(farBehind, []uint64{id})
		}
		for _, id := range tt.refused {
			pop.refuse(id)
		}
		got := compare(pop, 0, n/3)
		got.merge(compare(pop, n/3, n))
		assert.Equal(t, tt.lost, got.lost, name)
		assert.Equal(t, tt.wrong, got.wrong, name)
		assert.EqualValues(t, len(ids[expires])+len(tt.refused), got.want.count, name)
		wrong := tt.lost.count+tt.wrong.count > 0
		assert.Equal(t, wrong, got.want != pop.tally.result().checksum, name)
	}
}
