package main

import (
	"fmt"
	"net/netip"
	"time"
)

// verdict is the result of comparing what the server did with what the clients observed.
type verdict struct {
	ends      [roles][endKinds]int // clients by role, and by the end that the server saw
	cutDelays []time.Duration      // of the clients that were cut in time: from the end of the timeout until the client noticed
	notDue    int                  // silent clients that were rightly not cut, because the run was interrupted or has no timeouts
	excused   int                  // silent clients that were cut later than the bound, because the machine stalled
	starved   int                  // live clients that were rightly cut, because the machine delayed their beats

	// Faults of the server.
	liveCut     int // clients that were cut although they sent beats
	missed      int // silent clients that were not cut
	early       int // silent clients that were cut before their timeout had passed
	late        int // silent clients that were cut later than the bound, stalls of the machine deducted
	misreported int // clients whose end was not the one that the server saw
	faults      []string
}

// checkInput is what check compares.
type checkInput struct {
	timeout, bound time.Duration
	clients        []clientRecord
	ends           map[netip.AddrPort]connEnd
	stalls         []span // a result of merged
	hasTimeouts    bool
}

// check judges the server for each client. Two measurements excuse the server:
//
//   - For a silent client, the time for which the machine stalled while the server should have read
//     the last beat or cut the connection.
//   - For a live client, a gap between its own beats of three quarters of the timeout or more. A
//     client sends a heartbeat at least once per quarter of the timeout, unless the machine delays
//     it. The server cannot distinguish such a client from a silent one.
func check(in checkInput) verdict {
	var v verdict
	for _, c := range in.clients {
		if !c.addr.IsValid() {
			continue // the run was interrupted before the client connected
		}
		end := in.ends[c.addr]
		v.ends[c.role][end.kind]++
		switch {
		case c.acted && c.role == silent:
			v.checkSilent(in, c, end)
		case !c.cutAt.IsZero() || end.kind == cut:
			v.checkLiveCut(in, c)
		default:
			v.checkLeft(c, end)
		}
	}
	return v
}

// checkSilent judges the cut of a client that went silent.
func (v *verdict) checkSilent(in checkInput, c clientRecord, end connEnd) {
	due := c.lastBeat.Add(in.timeout)
	seen := c.cutAt
	if seen.IsZero() {
		seen = c.leftAt
	}
	stalled := stalledWithin(in.stalls, c.lastBeat, end.read) + stalledWithin(in.stalls, due, seen)
	delay := seen.Sub(due)
	switch {
	case c.cutAt.IsZero() && (!in.hasTimeouts || delay <= in.bound+stalled):
		v.notDue++
	case c.cutAt.IsZero():
		v.missed++
		v.fault(c, "went silent and was not cut within %v", seen.Sub(c.lastBeat))
	case end.kind != cut:
		v.misreported++
		v.fault(c, "was cut, but the server recorded %v", end.kind)
	case delay < 0 && c.wasStarved(in.timeout):
		v.starved++ // the server cut it for a gap before its last beat
	case delay < 0:
		v.early++
		v.fault(c, "was cut %v before its timeout had passed", -delay)
	case delay > in.bound+stalled:
		v.late++
		v.fault(c, "was cut %v after its timeout, while the machine stalled for %v", delay, stalled)
	default:
		if delay > in.bound {
			v.excused++
		}
		v.cutDelays = append(v.cutDelays, delay)
	}
}

// checkLiveCut judges the cut of a client that sent beats.
func (v *verdict) checkLiveCut(in checkInput, c clientRecord) {
	if c.wasStarved(in.timeout) {
		v.starved++
		return
	}
	v.liveCut++
	v.fault(c, "was cut although it sent a heartbeat at least every %v", c.longestGap)
}

// checkLeft judges what the server recorded about a client that left by itself.
func (v *verdict) checkLeft(c clientRecord, end connEnd) {
	want := closed
	if c.acted && c.role == crashes {
		want = reset
	}
	if end.kind != want {
		v.misreported++
		v.fault(c, "was %v, but the server recorded %v", want, end.kind)
	}
}

// wasStarved reports whether the client once sent no beat for so long that the server may have cut
// it.
func (c clientRecord) wasStarved(timeout time.Duration) bool { return c.longestGap >= timeout/4*3 }

func (v *verdict) fault(c clientRecord, format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf("client %v (%v) %s", c.addr, c.role, fmt.Sprintf(format, args...)))
}
