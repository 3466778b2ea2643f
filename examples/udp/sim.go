package main

import (
	"context"
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

// counters are the figures of a run.
type counters struct {
	delivered, packets, lost, duplicated, retransmitted int
	took                                                time.Duration
	trace                                               uint64 // hash of all deliveries
}

// simulation is an hour on an unreliable link. Each flow sends a message every second, and in the
// middle the link is down for five minutes.
type simulation struct {
	protocol
	faults
	flows    int
	messages int // of each flow
	every    time.Duration
	outage   time.Duration
}

func newSimulation() simulation {
	return simulation{
		// The timeouts that RFC 6298 requires.
		protocol: protocol{
			timing: timing{initial: time.Second, least: time.Second, most: time.Minute, tick: time.Millisecond, tries: 12},
			window: 32,
			flows:  100,
		},
		faults:   faults{loss: 10, duplicate: 5, latency: 40 * time.Millisecond, jitter: 80 * time.Millisecond},
		flows:    5,
		messages: 3600,
		every:    time.Second,
		outage:   5 * time.Minute,
	}
}

// run runs the simulation until its end or until ctx is done. The same seed gives the same run, to
// the microsecond, on every machine.
func (sim simulation) run(ctx context.Context, seed uint64, found *fault.List) (counters, error) {
	start := time.Date(2030, time.March, 1, 0, 0, 0, 0, time.UTC)
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Start: start, Tick: sim.tick})
	if err != nil {
		return counters{}, err
	}
	defer tw.Stop()
	rng := newSeeded(seed, 0)
	trace := fnv.New64a()
	in := newInbox(found)
	from, to := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")

	there := &link{tw: tw, rng: rng, faults: sim.faults}
	back := &link{tw: tw, rng: rng, faults: sim.faults}
	server := newNode(tw, sim.protocol, back.send, func(f flow, m []byte) {
		trace.Write(m)
		trace.Write([]byte(tw.Now().Format(time.RFC3339Nano)))
		in.deliver(f, m)
	})
	client := newNode(tw, sim.protocol, there.send, func(flow, []byte) { found.Add("the client received a message") })
	there.out = func(_ netip.AddrPort, b []byte) { server.receive(from, b) }
	back.out = func(_ netip.AddrPort, b []byte) { client.receive(to, b) }

	senders := make([]*sender, sim.flows)
	for id := range senders {
		senders[id], err = sim.feed(tw, client, flow{to, uint32(id)}, found)
		if err != nil {
			return counters{}, err
		}
	}
	sim.scheduleOutage(tw, there, back)

	// Until no timer is pending.
	for next, ok := tw.Next(); ok && ctx.Err() == nil; next, ok = tw.Next() {
		tw.Advance(next)
	}
	if ctx.Err() == nil {
		in.complete(sim.flows, sim.messages)
		found.Check(len(client.senders) == 0, "%d flows have not ended", len(client.senders))
		found.Check(len(server.receivers) == 0, "%d receivers have not been removed", len(server.receivers))
	}
	t := counters{delivered: in.total, took: tw.Now().Sub(start), trace: trace.Sum64()}
	t.add(there, back, senders)
	return t, nil
}

// feed opens a flow and sends a message at intervals, by a plan on the same wheel.
func (sim simulation) feed(tw *timingwheel.TimingWheel, client *node, f flow, found *fault.List) (*sender, error) {
	s, err := client.open(f, func(err error) { found.Check(err == nil, "flow %d: %v", f.id, err) })
	if err != nil {
		return nil, err
	}
	i := 0
	tw.ScheduleRun(timingwheel.Every(sim.every), func(r *timingwheel.Run) {
		if err := s.send(message(f.id, i)); err != nil {
			found.Add("flow %d: message %d: %v", f.id, i, err)
		}
		if i++; i == sim.messages {
			r.Stop()
			s.finish()
		}
	})
	return s, nil
}

// scheduleOutage takes the links down for some time in the middle.
func (sim simulation) scheduleOutage(tw *timingwheel.TimingWheel, links ...*link) {
	middle := sim.every * time.Duration(sim.messages) / 2
	set := func(at time.Duration, down bool) {
		tw.AfterFunc(at, func() {
			for _, l := range links {
				l.down = down
			}
		})
	}
	if sim.outage > 0 {
		set(middle, true)
		set(middle+sim.outage, false)
	}
}

func (t *counters) add(there, back *link, senders []*sender) {
	for _, l := range []*link{there, back} {
		t.packets += l.packets
		t.lost += l.lost
		t.duplicated += l.duplicated
	}
	for _, s := range senders {
		t.retransmitted += s.retransmitted
	}
}
