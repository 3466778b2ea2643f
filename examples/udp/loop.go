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

// loop runs a node on a real socket. One goroutine reads packets and runs timers, so the node needs
// no lock. The deadline of each read is the time of the next timer.
type loop struct {
	conn *net.UDPConn
	tw   *timingwheel.TimingWheel
	link *link
	node *node
}

// listen opens a socket on the loopback interface and creates a node on it. The node sends through
// a link with these faults.
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

// write sends a packet. A packet that the kernel rejects counts as lost, and is sent again.
func (l *loop) write(to netip.AddrPort, packet []byte) { _, _ = l.conn.WriteToUDPAddrPort(packet, to) }

func (l *loop) address() netip.AddrPort { return l.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// run runs the node until over returns true or ctx is done. It closes the socket.
func (l *loop) run(ctx context.Context, over func() bool) error {
	defer l.tw.Stop()
	// A read deadline cannot wake the loop, because the loop sets its own.
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
		// Advance the clock before handling the packet: its measurements and timers count from now.
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

// until returns the deadline of the next read, or the zero time (no deadline) if there are no
// timers. It is at least a tick ahead: a read with a past deadline fails without reading the
// socket, so on a busy machine timers would starve the packets. Timers are late by at most a tick
// because of that.
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

// ended returns nil if the error is that run closed the socket because ctx was done.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
