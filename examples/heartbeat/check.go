package main

import (
	"fmt"
	"net/netip"
	"time"
)

// verdict is the comparison of what the server did with what the clients know.
type verdict struct {
	ended    [fates][cut + 1]int // clients by fate, and by how the server saw them end
	unended  int                 // were not due to be cut: interrupted, or the server has no timeouts
	live     int                 // were cut though they beat
	missed   int                 // went silent and were not cut
	early    int                 // were cut before their timeout had passed
	late     int                 // were cut later than the bound, stalls of the machine allowed for
	mistaken int                 // the server saw another end than there was
	starved  int                 // were cut rightly though they meant to beat: the machine held them up
	widened  int                 // were cut later than the bound while the machine stalled
	overdue  []time.Duration     // of those cut rightly: from the timeout's end until the client saw it
	faults   []string            // what was wrong; empty if the server was right
}

// evidence is what a verdict is made of.
type evidence struct {
	timeout, bound time.Duration
	accounts       []account
	endings        map[netip.AddrPort]ending
	stalls         []span // as merged returns them
	cuts           bool   // the server has timeouts
}

// check judges every client. Two things excuse the server, both measured: for a silent client, the
// time for which the machine stalled while the server was to read its last beat or to cut it; for a
// live one, that by its own clock it beat far too late: a client that is to beat after a quarter of
// the timeout at the latest and was held up for three quarters cannot be told from a silent one.
func check(ev evidence) verdict {
	var v verdict
	for _, a := range ev.accounts {
		if !a.addr.IsValid() {
			continue // never connected: the run was interrupted before
		}
		e := ev.endings[a.addr]
		v.ended[a.fate][e.how]++
		switch {
		case a.acted && a.fate == silent:
			v.judgeSilent(ev, a, e)
		case !a.cutAt.IsZero() || e.how == cut:
			v.judgeCut(ev, a)
		default:
			v.judgeLeft(a, e)
		}
	}
	return v
}

func (v *verdict) judgeSilent(ev evidence, a account, e ending) {
	due := a.lastBeat.Add(ev.timeout)
	seen := a.cutAt
	if seen.IsZero() {
		seen = a.leftAt
	}
	stalled := stalledWithin(ev.stalls, a.lastBeat, e.read) + stalledWithin(ev.stalls, due, seen)
	overdue := seen.Sub(due)
	switch {
	case a.cutAt.IsZero() && (!ev.cuts || overdue <= ev.bound+stalled):
		v.unended++
	case a.cutAt.IsZero():
		v.missed++
		v.fault(a, "went silent and was not cut within %v", seen.Sub(a.lastBeat))
	case e.how != cut:
		v.mistaken++
		v.fault(a, "saw a cut, the server says %v", e.how)
	case overdue < 0 && a.heldUp(ev.timeout):
		v.starved++ // was cut for a silence before the last beat, unseen by the client
	case overdue < 0:
		v.early++
		v.fault(a, "was cut %v before its timeout had passed", -overdue)
	case overdue > ev.bound+stalled:
		v.late++
		v.fault(a, "was cut %v after its timeout (machine stalled for %v)", overdue, stalled)
	default:
		if overdue > ev.bound {
			v.widened++
		}
		v.overdue = append(v.overdue, overdue)
	}
}

func (v *verdict) judgeCut(ev evidence, a account) {
	if a.heldUp(ev.timeout) {
		v.starved++
		return
	}
	v.live++
	v.fault(a, "was cut though it beat at least every %v", a.longestGap)
}

// heldUp reports whether the client, by its own clock, once failed to beat for so long that the
// server may have cut it.
func (a account) heldUp(timeout time.Duration) bool { return a.longestGap >= timeout/4*3 }

func (v *verdict) judgeLeft(a account, e ending) {
	want := closed
	if a.acted && a.fate == crashes {
		want = reset
	}
	if e.how != want {
		v.mistaken++
		v.fault(a, "was %v, the server says %v", want, e.how)
	}
}

func (v *verdict) fault(a account, format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf("%v (to %v) %s", a.addr, a.fate, fmt.Sprintf(format, args...)))
}
