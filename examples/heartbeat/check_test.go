package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var someAddr = netip.MustParseAddrPort("127.0.0.1:4000")

// The cases have a timeout of 1000 ms and a bound of 100 ms; the last beat is sent at 0 and read at
// 1.
func TestCheck(t *testing.T) {
	t.Parallel()
	wentSilent := account{fate: silent, acted: true, lastBeat: at(0), cutAt: at(1002), leftAt: at(1002), longestGap: 200 * time.Millisecond}
	wasCut := ending{cut, at(1)}
	with := func(a account, change func(*account)) account {
		change(&a)
		return a
	}
	for name, tt := range map[string]struct {
		account account
		ending  ending
		stalls  []span
		want    verdict // without its tables
		wrong   bool
	}{
		"silent, cut in time":  {wentSilent, wasCut, nil, verdict{}, false},
		"silent, cut at once":  {with(wentSilent, func(a *account) { a.cutAt = at(1000) }), wasCut, nil, verdict{}, false},
		"silent, at the bound": {with(wentSilent, func(a *account) { a.cutAt = at(1100) }), wasCut, nil, verdict{}, false},
		"silent, late":         {with(wentSilent, func(a *account) { a.cutAt = at(1101) }), wasCut, nil, verdict{late: 1}, true},
		"silent, late by a stall": {with(wentSilent, func(a *account) { a.cutAt = at(1150) }), wasCut,
			[]span{{at(990), at(1050)}}, verdict{widened: 1}, false},
		"silent, late by more than the stall": {with(wentSilent, func(a *account) { a.cutAt = at(1151) }), wasCut,
			[]span{{at(990), at(1050)}}, verdict{late: 1}, true},
		"a stall in between excuses nothing": {with(wentSilent, func(a *account) { a.cutAt = at(1150) }), wasCut,
			[]span{{at(10), at(900)}}, verdict{late: 1}, true},
		"last beat read late in a stall": {with(wentSilent, func(a *account) { a.cutAt = at(1152) }), ending{cut, at(80)},
			[]span{{at(0), at(70)}}, verdict{widened: 1}, false},
		"silent, early": {with(wentSilent, func(a *account) { a.cutAt = at(999) }), wasCut, nil, verdict{early: 1}, true},
		"silent, early, held up before": {with(wentSilent, func(a *account) { a.cutAt, a.longestGap = at(2), time.Second }),
			ending{cut, at(-1001)}, nil, verdict{starved: 1}, false},
		"silent, missed": {with(wentSilent, func(a *account) { a.cutAt, a.leftAt = time.Time{}, at(3000) }),
			ending{closed, at(1)}, nil, verdict{missed: 1}, true},
		"silent, interrupted": {with(wentSilent, func(a *account) { a.cutAt, a.leftAt = time.Time{}, at(500) }),
			ending{closed, at(1)}, nil, verdict{unended: 1}, false},
		"silent, cut, unknown to the server": {wentSilent, ending{}, nil, verdict{mistaken: 1}, true},
		"live, cut": {account{fate: stays, lastBeat: at(0), cutAt: at(100), longestGap: 200 * time.Millisecond}, wasCut, nil,
			verdict{live: 1}, true},
		"live, cut, did not see it": {account{fate: closes, acted: true, lastBeat: at(0), longestGap: 200 * time.Millisecond}, wasCut,
			nil, verdict{live: 1}, true},
		"held up, cut":              {account{fate: stays, lastBeat: at(0), cutAt: at(1001), longestGap: time.Second}, wasCut, nil, verdict{starved: 1}, false},
		"stays":                     {account{fate: stays, acted: true}, ending{how: closed}, nil, verdict{}, false},
		"closes":                    {account{fate: closes, acted: true}, ending{how: closed}, nil, verdict{}, false},
		"crashes":                   {account{fate: crashes, acted: true}, ending{how: reset}, nil, verdict{}, false},
		"to crash, interrupted":     {account{fate: crashes}, ending{how: closed}, nil, verdict{}, false},
		"crashed, but seen closed":  {account{fate: crashes, acted: true}, ending{how: closed}, nil, verdict{mistaken: 1}, true},
		"closed, but seen crashing": {account{fate: closes, acted: true}, ending{how: reset}, nil, verdict{mistaken: 1}, true},
		"closed, unnoticed":         {account{fate: closes, acted: true}, ending{}, nil, verdict{mistaken: 1}, true},
	} {
		tt.account.addr = someAddr
		got := check(evidence{time.Second, 100 * time.Millisecond, []account{tt.account},
			map[netip.AddrPort]ending{someAddr: tt.ending}, tt.stalls, true})
		assert.Equal(t, tt.wrong, len(got.faults) > 0, "%s: %v", name, got.faults)
		assert.Equal(t, 1, got.ended[tt.account.fate][tt.ending.how], name)
		got.ended, got.overdue, got.faults = verdict{}.ended, nil, nil
		assert.Equal(t, tt.want, got, name)
	}
}

func TestSilentClientsMayStayWithoutTimeouts(t *testing.T) {
	t.Parallel()
	a := account{addr: someAddr, fate: silent, acted: true, lastBeat: at(0), leftAt: at(3000)}
	ev := evidence{time.Second, 100 * time.Millisecond, []account{a}, map[netip.AddrPort]ending{someAddr: {closed, at(1)}}, nil, false}
	got := check(ev)
	assert.Empty(t, got.faults)
	assert.Equal(t, 1, got.unended)

	ev.accounts[0].cutAt, ev.endings[someAddr] = at(900), ending{cut, at(1)}
	assert.Len(t, check(ev).faults, 1, "a cut before the timeout is wrong nevertheless")
}

func TestCheckSkipsClientsThatNeverConnected(t *testing.T) {
	t.Parallel()
	assert.Equal(t, verdict{}, check(evidence{accounts: []account{{fate: silent}}}))
}
