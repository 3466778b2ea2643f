package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// at is a moment so many milliseconds after some beginning.
func at(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }

// An order is placed at 0 and may be paid for 1000 ms.
func TestJudge(t *testing.T) {
	t.Parallel()
	type entries = []entry
	place := entry{Kind: placed, At: at(0)}
	deliver := func(ms int, token uint64) entry { return entry{Kind: delivered, At: at(ms), Token: token} }
	cancel := func(ms int, token uint64) entry { return entry{Kind: cancelled, At: at(ms), Token: token} }
	pay := func(ms int) entry { return entry{Kind: paid, At: at(ms)} }
	yes, no, never := map[string]bool{"o": true}, map[string]bool{"o": false}, map[string]bool{}
	ms := func(n int) []time.Duration { return []time.Duration{time.Duration(n) * time.Millisecond} }
	for name, tt := range map[string]struct {
		entries entries
		answers map[string]bool
		want    verdict
		fault   string
	}{
		"paid": {entries{place, pay(10)}, yes, verdict{placed: 1, paid: 1}, ""},
		"cancelled": {entries{place, deliver(1001, 1), cancel(1020, 1)}, never,
			verdict{placed: 1, cancelled: 1, deliveries: 1, late: ms(1), overdue: ms(20)}, ""},
		"cancelled, payment refused": {entries{place, deliver(1000, 1), cancel(1020, 1), pay(1021)}, no,
			verdict{placed: 1, cancelled: 1, refused: 1, deliveries: 1, late: ms(0), overdue: ms(20)}, ""},
		"killed before the effect": {entries{place, deliver(1001, 1), deliver(1100, 2), cancel(1120, 2)}, never,
			verdict{placed: 1, cancelled: 1, deliveries: 2, duplicates: 1, late: ms(1), overdue: ms(120)}, ""},
		"cancelled twice, once in effect": {entries{place, deliver(1001, 1), cancel(1002, 1), deliver(1100, 2), cancel(1120, 2)}, never,
			verdict{placed: 1, cancelled: 1, deliveries: 2, duplicates: 1, void: 1, late: ms(1), overdue: ms(2)}, ""},
		"killed before the effect, then paid": {entries{place, deliver(1001, 1), pay(1050)}, yes,
			verdict{placed: 1, paid: 1, deliveries: 1, late: ms(1)}, ""},
		"interleaved with a late token": {entries{place, deliver(1001, 2), deliver(1002, 1), cancel(1010, 1), cancel(1020, 2)}, never,
			verdict{placed: 1, cancelled: 1, deliveries: 2, duplicates: 1, void: 1, late: ms(1), overdue: ms(20)}, ""},

		"lost": {entries{place}, never, verdict{placed: 1, lost: 1}, "neither paid nor cancelled"},
		"lost after a crash": {entries{place, deliver(1001, 1)}, no,
			verdict{placed: 1, lost: 1, refused: 1, deliveries: 1, late: ms(1)}, "delivered 1 times"},
		"early": {entries{place, deliver(999, 1), cancel(1020, 1)}, never,
			verdict{placed: 1, cancelled: 1, early: 1, deliveries: 1, overdue: ms(20)},
			"1ms before its time"},
		"early, not the first line": {entries{place, deliver(1001, 2), deliver(900, 1), cancel(1020, 2)}, never,
			verdict{placed: 1, cancelled: 1, early: 1, deliveries: 2, duplicates: 1, overdue: ms(20)}, "100ms before its time"},
		"paid and cancelled": {entries{place, deliver(1001, 1), cancel(1020, 1)}, yes,
			verdict{placed: 1, wrongly: 1, deliveries: 1, late: ms(1)}, "payment was accepted"},
		"paid and delivered": {entries{place, pay(900), deliver(1001, 1)}, yes,
			verdict{placed: 1, paid: 1, wrongly: 1, deliveries: 1, late: ms(1)}, "delivered after its payment"},
		"paid, and the customer told otherwise": {entries{place, pay(900)}, no, verdict{placed: 1, refused: 1}, "was not told so"},
		"the same token twice": {entries{place, deliver(1001, 1), deliver(1002, 1), cancel(1020, 1)}, never,
			verdict{placed: 1, cancelled: 1, deliveries: 2, duplicates: 1, late: ms(1), overdue: ms(20)}, "the same token"},
		"never placed": {entries{deliver(1001, 1)}, never, verdict{}, "never placed"},
	} {
		b := book{orders: make(map[string]*order)}
		for _, e := range tt.entries {
			e.Order = "o"
			b.apply(e)
		}
		got := judge(config{timeout: time.Second}, b, tt.answers)
		if tt.fault == "" {
			assert.Empty(t, got.faults, name)
		} else if assert.Len(t, got.faults, 1, name) {
			assert.Contains(t, got.faults[0], tt.fault, name)
		}
		got.faults = nil
		assert.Equal(t, tt.want, got, name)
	}
}

func TestPrintVerdict(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := outcome{cfg: config{store: "redis://me:hush@host:1", kills: 3}, journal: "the-journal",
		verdict: verdict{paid: 1234, cancelled: 5, overdue: []time.Duration{2e6, 1e6, 9e6}}, took: 1234 * time.Millisecond}
	o.print(&out)
	assert.Contains(t, out.String(), "RIGHT: each of 5 unpaid orders was cancelled once and none of 1,234 paid ones, over 3 kills, in 1.2s")
	assert.Regexp(t, `order cancelled after the time to pay +│ +3 │ +2.0ms │ +9.0ms`, out.String())
	assert.NotContains(t, out.String(), "hush")

	out.Reset()
	for range faultsShown + 2 {
		o.verdict.fault("%s is lost", "order-1")
	}
	o.print(&out)
	assert.Contains(t, out.String(), "order-1 is lost\n")
	assert.Contains(t, out.String(), "and 2 more\nWRONG: 12 faults; the journal is in the-journal\n")
	assert.NotContains(t, out.String(), "RIGHT")
}
