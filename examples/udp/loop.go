package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// loop is a node on a real socket. One goroutine reads packets and runs timers, so that the node
// needs no lock: it waits for whichever comes first, as the time at which the wheel has something
// to do is the deadline of the next read.
type loop struct {
	conn *net.UDPConn
	tw   *timingwheel.TimingWheel
	link *link
	node *node
}

// listen opens a socket on the loopback interface and makes a node on it. What it sends goes
// through a link with these faults.
func listen(cfg protocol, f faults, rng *rand.Rand, deliver func(flow, []byte)) (*loop, error) {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true, Tick: cfg.tick})
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	l := &loop{conn: conn, tw: tw}
	l.link = &link{tw: tw, rng: rng, faults: f, out: l.write}
	l.node = newNode(tw, cfg, l.link.send, deliver)
	return l, nil
}

// write sends a packet. What the kernel does not take is lost like others, and sent again.
func (l *loop) write(to netip.AddrPort, packet []byte) { _, _ = l.conn.WriteToUDPAddrPort(packet, to) }

func (l *loop) address() netip.AddrPort { return l.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// run runs the node until over is true or ctx has ended. It closes the socket.
func (l *loop) run(ctx context.Context, over func() bool) error {
	defer l.tw.Stop()
	// A read deadline would not do to wake the loop, since it sets its own.
	stop := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer func() {
		if stop() {
			_ = l.conn.Close()
		}
	}()
	buf := make([]byte, 64<<10)
	l.tw.Advance(time.Now())
	for !over() {
		if err := l.conn.SetReadDeadline(l.until()); err != nil {
			return ended(ctx, err)
		}
		n, from, err := l.conn.ReadFromUDPAddrPort(buf)
		// First the clock, then the packet: what it measures and arms is to count from now.
		l.tw.Advance(time.Now())
		switch {
		case err == nil:
			l.node.receive(from, buf[:n])
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return ended(ctx, err)
		}
	}
	return nil
}

// until is how long to wait for packets: the zero time, for ever, where there are no timers. It
// never lies in the past, as a read then fails without a look at the socket, and on a busy machine
// timers would let no packet through. They are late by a tick for that at most.
func (l *loop) until() time.Time {
	next, ok := l.tw.Next()
	if !ok {
		return time.Time{}
	}
	if soon := time.Now().Add(l.node.cfg.tick); next.Before(soon) {
		return soon
	}
	return next
}

// ended is nil where the error comes from closing the socket, as ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
