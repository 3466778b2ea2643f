package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// run simulates an hour, sends messages over real sockets, prints the figures of both and returns
// an error with the faults.
func run(ctx context.Context, cfg config, w io.Writer) error {
	found := &fault.List{}
	begin := time.Now()
	simulated, err := cfg.simulated.run(ctx, cfg.seed, found)
	if err != nil {
		return err
	}
	spent := time.Since(begin)
	real, silence, err := overSockets(ctx, cfg, found)
	if err != nil {
		return err
	}
	t := figures.Table(w, 2, 7, "", "delivered", "packets", "lost", "duplicated", "retransmitted", "time")
	for name, y := range map[string]counters{"simulated": simulated, "over sockets": real} {
		t.AppendRow(table.Row{name, figures.Comma(y.delivered), figures.Comma(y.packets), figures.Comma(y.lost), figures.Comma(y.duplicated),
			figures.Comma(y.retransmitted), y.took.Round(time.Millisecond)})
	}
	t.SortBy([]table.SortBy{{Number: 1, Mode: table.Dsc}})
	t.Render()
	fmt.Fprintf(w, "the simulation took %s\n", figures.Millis(spent))
	if silence != nil {
		fmt.Fprintln(w, "the flow to a silent socket has ended:", silence)
	}
	if err := found.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		fmt.Fprintln(w, "interrupted: every message until then was delivered once, in order")
		return nil
	}
	fmt.Fprintln(w, "PASS: every message was delivered once, in order")
	return nil
}

// overSockets sends messages from one socket to another and to a silent one. silence is the error
// of the flow to the silent socket.
func overSockets(ctx context.Context, cfg config, found *fault.List) (t counters, silence, err error) {
	begin := time.Now()
	in := newInbox(found)
	server, err := listen(cfg.protocol, cfg.faults, newSeeded(cfg.seed, 1), in.deliver)
	if err != nil {
		return t, nil, err
	}
	client, err := listen(cfg.protocol, cfg.faults, newSeeded(cfg.seed, 2), func(flow, []byte) { found.Add("the client received a message") })
	if err != nil {
		return t, nil, err
	}
	silent, err := listen(cfg.protocol, faults{}, nil, nil)
	if err != nil {
		return t, nil, err
	}
	defer func() { _ = silent.conn.Close() }()

	serving, endServing := context.WithCancel(ctx)
	defer endServing()
	served := make(chan error, 1)
	go func() { served <- server.run(serving, func() bool { return false }) }()
	senders, err := client.talk(ctx, cfg, server.address(), silent.address(), &silence, found)
	if err != nil {
		return t, nil, err
	}
	err = client.run(ctx, func() bool { return len(client.node.senders) == 0 })
	endServing() // all messages were acknowledged and so delivered
	err = errors.Join(err, <-served)

	if ctx.Err() == nil {
		in.complete(cfg.flows, cfg.messages)
		found.Check(errors.Is(silence, errNoAnswer), "the flow to a silent socket has ended with %v", silence)
	}
	t = counters{delivered: in.total, took: time.Since(begin)}
	t.add(client.link, server.link, senders)
	return t, silence, err
}

// talk opens the flows and queues their messages, before the loop runs. It stops early if ctx is
// done.
func (l *loop) talk(ctx context.Context, cfg config, server, silent netip.AddrPort, silence *error, found *fault.List) ([]*sender, error) {
	senders := make([]*sender, 0, cfg.flows+1)
	for id := range cfg.flows {
		s, err := l.node.open(flow{server, uint32(id)}, func(err error) { found.Check(err == nil, "flow %d: %v", id, err) })
		if err != nil {
			return nil, err
		}
		for i := 0; i < cfg.messages && ctx.Err() == nil; i++ {
			if err := s.send(message(uint32(id), i)); err != nil {
				return nil, err
			}
		}
		s.finish()
		senders = append(senders, s)
	}
	s, err := l.node.open(flow{silent, 0}, func(err error) { *silence = err })
	if err != nil {
		return nil, err
	}
	s.rto.tries = cfg.silentTries
	return append(senders, s), s.send(message(0, 0))
}
