package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/timingwheel-go/timingwheel"
)

// correct is the observation of a run of 1,000 timers of which 100 expired, 50 were stopped and 200
// beaten.
func correct() observation {
	var sum checksum
	for id := range uint64(100) {
		sum.add(id)
	}
	st := timingwheel.Stats{Armed: 1000, Fired: 100, Stopped: 50, Postponed: 200, Pending: 850}
	st.Lateness.Counts[3] = 100
	return observation{
		n: 1000, complete: true, got: record{checksum: sum}, comparison: comparison{want: sum},
		beat: 200, stopped: 50, stats: st, length: 850,
	}
}

func TestFaultsNamesEachFault(t *testing.T) {
	t.Parallel()
	assert.Empty(t, correct().faults())
	for name, tt := range map[string]struct {
		change func(*observation)
		want   string
		always bool // also a fault of an interrupted run
	}{
		"lost":          {func(ob *observation) { ob.comparison.lost.add(7) }, "1 timer did not expire although due, for example number 7", false},
		"wrong":         {func(ob *observation) { ob.comparison.wrong.add(7) }, "1 timer expired although not due, for example number 7", false},
		"twice":         {func(ob *observation) { ob.got.twice.add(7) }, "1 timer expired more than once, for example number 7", true},
		"unknown":       {func(ob *observation) { ob.got.unknown.add(1007) }, "1 timer expired that had not been armed, for example number 1007", true},
		"refused early": {func(ob *observation) { ob.refusedEarly = 2 }, "2 beats or stops refused before the deadline", true},
		"early": {func(ob *observation) {
			ob.got.early.add(7)
			ob.got.earliest = time.Millisecond
		}, "1 timer expired early, by up to 1ms, for example number 7", true},
		"count":                     {func(ob *observation) { ob.got.count++ }, "count and checksums", false},
		"sum":                       {func(ob *observation) { ob.got.sum++ }, "count and checksums", false},
		"xor":                       {func(ob *observation) { ob.got.xor ^= 1 }, "count and checksums", false},
		"Len":                       {func(ob *observation) { ob.length-- }, "Len is 849 at the end; it must be 850", false},
		"Stats.Armed":               {func(ob *observation) { ob.stats.Armed-- }, "Stats.Armed is 999; it must be 1000", false},
		"Stats.Fired":               {func(ob *observation) { ob.stats.Fired++ }, "Stats.Fired is 101; it must be 100", false},
		"Stats.Stopped":             {func(ob *observation) { ob.stats.Stopped++ }, "Stats.Stopped is 51; it must be 50", false},
		"Stats.Postponed":           {func(ob *observation) { ob.stats.Postponed-- }, "Stats.Postponed is 199; it must be 200", false},
		"Stats.Postponed, too many": {func(ob *observation) { ob.stats.Postponed++ }, "Stats.Postponed is 201; it must be 200", false},
		"Stats.Pending":             {func(ob *observation) { ob.stats.Pending++ }, "Stats.Pending is 851; it must be 850", false},
		"Stats.Lateness":            {func(ob *observation) { ob.stats.Lateness.Counts[3]-- }, "Stats.Lateness.Count is 99; it must be 100", false},
	} {
		ob := correct()
		tt.change(&ob)
		faults := ob.faults()
		require.Len(t, faults, 1, name)
		assert.Contains(t, faults[0], tt.want, name)
		ob.overran = true
		assert.Equal(t, name != "Stats.Postponed", len(ob.faults()) == 1, name)
		ob.complete = false
		assert.Equal(t, tt.always, len(ob.faults()) == 1, name)
	}
}

func TestCompareFindsLostAndWrongTimers(t *testing.T) {
	t.Parallel()
	const n = 1000
	p := testPlan(1)
	ids := map[kind][]uint64{}
	for id := range uint64(n) {
		f, _ := p.of(id)
		ids[f] = append(ids[f], id)
	}
	for name, tt := range map[string]struct {
		expired     func() []uint64
		refused     []uint64
		lost, wrong faultCount
	}{
		"right":             {func() []uint64 { return ids[expires] }, nil, faultCount{}, faultCount{}},
		"one lost":          {func() []uint64 { return ids[expires][1:] }, nil, faultCount{1, ids[expires][0]}, faultCount{}},
		"one that stays":    {func() []uint64 { return append(ids[expires], ids[stays][0]) }, nil, faultCount{}, faultCount{1, ids[stays][0]}},
		"one beaten":        {func() []uint64 { return append(ids[expires], ids[beaten][0]) }, nil, faultCount{}, faultCount{1, ids[beaten][0]}},
		"one stopped":       {func() []uint64 { return append(ids[expires], ids[stopped][0]) }, nil, faultCount{}, faultCount{1, ids[stopped][0]}},
		"one beaten late":   {func() []uint64 { return append(ids[expires], ids[beaten][0]) }, ids[beaten][:1], faultCount{}, faultCount{}},
		"the same, not out": {func() []uint64 { return ids[expires] }, ids[beaten][:1], faultCount{1, ids[beaten][0]}, faultCount{}},
		"one for another": {func() []uint64 { return append(ids[expires][1:], ids[stays][0]) }, nil,
			faultCount{1, ids[expires][0]}, faultCount{1, ids[stays][0]}},
	} {
		pop := &population{plan: p, n: n, refused: newBitmap(n)}
		pop.recorder = newRecorder(&pop.plan, time.Now(), n)
		for _, id := range tt.expired() {
			pop.recorder.expireAt(afterAll, []uint64{id})
		}
		for _, id := range tt.refused {
			pop.recordRefused(id)
		}
		got := compare(pop, 0, n/3)
		got.merge(compare(pop, n/3, n))
		assert.Equal(t, tt.lost, got.lost, name)
		assert.Equal(t, tt.wrong, got.wrong, name)
		assert.EqualValues(t, len(ids[expires])+len(tt.refused), got.want.count, name)
		wrong := tt.lost.count+tt.wrong.count > 0
		assert.Equal(t, wrong, got.want != pop.recorder.result().checksum, name)
	}
}
