package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The timeout is 1000 ms and the bound is 100 ms. The last beat is sent at 0 ms and read at 1 ms.
func TestCheckJudgesEachClient(t *testing.T) {
	t.Parallel()
	wentSilent := clientRecord{role: silent, acted: true, lastBeat: at(0), cutAt: at(1002), leftAt: at(1002), longestGap: 200 * time.Millisecond}
	wasCut := connEnd{cut, at(1)}
	with := func(c clientRecord, change func(*clientRecord)) clientRecord {
		change(&c)
		return c
	}
	for name, tt := range map[string]struct {
		client clientRecord
		end    connEnd
		stalls []span
		want   verdict // without ends, cutDelays and faults
		wrong  bool
	}{
		"silent, cut in time":  {wentSilent, wasCut, nil, verdict{}, false},
		"silent, cut early":    {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1000) }), wasCut, nil, verdict{}, false},
		"silent, at the bound": {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1100) }), wasCut, nil, verdict{}, false},
		"silent, late":         {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1101) }), wasCut, nil, verdict{late: 1}, true},
		"silent, late during a stall": {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1150) }), wasCut,
			[]span{{at(990), at(1050)}}, verdict{excused: 1}, false},
		"silent, late by more than the stall": {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1151) }), wasCut,
			[]span{{at(990), at(1050)}}, verdict{late: 1}, true},
		"silent, late, stall before the timeout": {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1150) }), wasCut,
			[]span{{at(10), at(900)}}, verdict{late: 1}, true},
		"silent, last beat read late after a stall": {with(wentSilent, func(c *clientRecord) { c.cutAt = at(1152) }), connEnd{cut, at(80)},
			[]span{{at(0), at(70)}}, verdict{excused: 1}, false},
		"silent, early": {with(wentSilent, func(c *clientRecord) { c.cutAt = at(999) }), wasCut, nil, verdict{early: 1}, true},
		"silent, early, starved before": {with(wentSilent, func(c *clientRecord) { c.cutAt, c.longestGap = at(2), time.Second }),
			connEnd{cut, at(-1001)}, nil, verdict{starved: 1}, false},
		"silent, missed": {with(wentSilent, func(c *clientRecord) { c.cutAt, c.leftAt = time.Time{}, at(3000) }),
			connEnd{closed, at(1)}, nil, verdict{missed: 1}, true},
		"silent, interrupted": {with(wentSilent, func(c *clientRecord) { c.cutAt, c.leftAt = time.Time{}, at(500) }),
			connEnd{closed, at(1)}, nil, verdict{notDue: 1}, false},
		"silent, cut, not recorded by the server": {wentSilent, connEnd{}, nil, verdict{misreported: 1}, true},
		"live, cut": {clientRecord{role: stays, lastBeat: at(0), cutAt: at(100), longestGap: 200 * time.Millisecond}, wasCut, nil,
			verdict{liveCut: 1}, true},
		"live, cut, unnoticed by the client": {clientRecord{role: closes, acted: true, lastBeat: at(0), longestGap: 200 * time.Millisecond}, wasCut,
			nil, verdict{liveCut: 1}, true},
		"starved, cut":                {clientRecord{role: stays, lastBeat: at(0), cutAt: at(1001), longestGap: time.Second}, wasCut, nil, verdict{starved: 1}, false},
		"stays":                       {clientRecord{role: stays, acted: true}, connEnd{kind: closed}, nil, verdict{}, false},
		"closes":                      {clientRecord{role: closes, acted: true}, connEnd{kind: closed}, nil, verdict{}, false},
		"crashes":                     {clientRecord{role: crashes, acted: true}, connEnd{kind: reset}, nil, verdict{}, false},
		"crashes, interrupted":        {clientRecord{role: crashes}, connEnd{kind: closed}, nil, verdict{}, false},
		"crashes, recorded as closed": {clientRecord{role: crashes, acted: true}, connEnd{kind: closed}, nil, verdict{misreported: 1}, true},
		"closes, recorded as reset":   {clientRecord{role: closes, acted: true}, connEnd{kind: reset}, nil, verdict{misreported: 1}, true},
		"closes, not recorded":        {clientRecord{role: closes, acted: true}, connEnd{}, nil, verdict{misreported: 1}, true},
	} {
		tt.client.addr = someAddr
		got := check(checkInput{time.Second, 100 * time.Millisecond, []clientRecord{tt.client},
			map[netip.AddrPort]connEnd{someAddr: tt.end}, tt.stalls, true})
		assert.Equal(t, tt.wrong, len(got.faults) > 0, "%s: %v", name, got.faults)
		assert.Equal(t, 1, got.ends[tt.client.role][tt.end.kind], name)
		got.ends, got.cutDelays, got.faults = verdict{}.ends, nil, nil
		assert.Equal(t, tt.want, got, name)
	}
}

func TestCheckAcceptsSilentClientsWithoutTimeouts(t *testing.T) {
	t.Parallel()
	a := clientRecord{addr: someAddr, role: silent, acted: true, lastBeat: at(0), leftAt: at(3000)}
	in := checkInput{time.Second, 100 * time.Millisecond, []clientRecord{a}, map[netip.AddrPort]connEnd{someAddr: {closed, at(1)}}, nil, false}
	got := check(in)
	assert.Empty(t, got.faults)
	assert.Equal(t, 1, got.notDue)

	in.clients[0].cutAt, in.ends[someAddr] = at(900), connEnd{cut, at(1)}
	assert.Len(t, check(in).faults, 1, "a cut before the timeout is wrong")
}

func TestCheckSkipsClientsThatNeverConnected(t *testing.T) {
	t.Parallel()
	assert.Equal(t, verdict{}, check(checkInput{clients: []clientRecord{{role: silent}}}))
}
