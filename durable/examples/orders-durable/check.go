package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// verdict compares the journal with what the customers know.
type verdict struct {
	placed, paid, refused, cancelled int
	deliveries                       int
	duplicates                       int             // deliveries of an order after its first one
	void                             int             // cancellations that were repeated, and did not count
	torn                             int             // lines that were cut off by a kill
	lost                             int             // neither paid nor cancelled
	early                            int             // delivered before the time to pay was over
	wrongly                          int             // cancelled, or delivered, though the payment was accepted
	late                             []time.Duration // of first deliveries, after the time to pay
	overdue                          []time.Duration // of cancellations, likewise
	faults                           []string        // what was wrong; empty if all was right
}

// judge looks at each order.
func judge(cfg config, b book, answers map[string]bool) verdict {
	v := verdict{torn: b.torn}
	for _, id := range slices.Sorted(maps.Keys(b.orders)) {
		v.judge(cfg, id, b.orders[id], answers)
	}
	return v
}

func (v *verdict) judge(cfg config, id string, o *order, answers map[string]bool) {
	if o.placed.IsZero() {
		v.fault("%s was delivered, and was never placed", id)
		return
	}
	v.placed++
	v.deliveries += o.deliveries
	v.duplicates += max(0, o.deliveries-1)
	v.void += o.void
	due := o.placed.Add(cfg.timeout)
	if o.deliveries > 0 {
		v.judgeDelivery(cfg, id, o, due)
	}
	accepted, answered := answers[id]
	if answered && !accepted {
		v.refused++
	}
	switch {
	case o.decision == cancelled && accepted:
		v.wrongly++
		v.fault("%s was cancelled, though its payment was accepted", id)
	case o.decision == cancelled:
		v.cancelled++
		v.overdue = append(v.overdue, o.decidedAt.Sub(due))
	case o.decision == paid && !accepted:
		v.fault("%s is paid by the journal, and its customer was not told so", id)
	case o.decision == paid:
		v.paid++
	default:
		v.lost++
		v.fault("%s was neither paid nor cancelled; it was delivered %d times", id, o.deliveries)
	}
}

func (v *verdict) judgeDelivery(cfg config, id string, o *order, due time.Time) {
	// The clocks of two machines may drift apart by 200 parts in a million.
	if late := o.first.Sub(due); late < -cfg.timeout/5000 {
		v.early++
		v.fault("%s was delivered %v before its time to pay was over", id, -late)
	} else {
		v.late = append(v.late, max(0, late))
	}
	if o.sameToken > 0 {
		v.fault("%s was delivered twice with the same token", id)
	}
	if o.unwanted > 0 {
		v.wrongly++
		v.fault("%s was delivered after its payment was accepted", id)
	}
}

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}
