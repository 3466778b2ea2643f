package main

import (
	"net"
	"time"

	"github.com/timingwheel-go/timingwheel/wheelnet"
)

// wheelDeadlines guard each connection by a read deadline that the wheel keeps.
type wheelDeadlines struct {
	wheel
	deadlines
}

func (w wheelDeadlines) listener(l net.Listener) net.Listener { return wheelnet.Listener(l, w.tw) }

// netDeadlines guard each connection by a read deadline of package net.
type netDeadlines struct {
	bare
	deadlines
}

// deadlines are read deadlines, which the server sets before each Read. There is no other timer.
type deadlines struct{}

func (deadlines) guard(srv *server, conn net.Conn, d time.Duration) guard {
	g := &deadline{srv: srv, conn: conn}
	g.set(d)
	return g
}

type deadline struct {
	due  time.Duration // on the server's clock
	srv  *server
	conn net.Conn
}

func (g *deadline) set(d time.Duration) {
	g.due = g.srv.now() + d
	_ = g.conn.SetReadDeadline(g.srv.start.Add(g.due)) // fails only on a closed connection
}

func (g *deadline) postpone() bool {
	g.set(g.srv.timeout)
	return true
}

func (g *deadline) passed() bool {
	late := g.srv.now() - g.due
	g.srv.noteFired(late)
	_ = g.conn.SetReadDeadline(time.Time{})
	return late >= 0
}

func (g *deadline) stop() {} // a closed connection has no deadline

// noGuards cut no connection.
type noGuards struct{ bare }

type noGuard struct{}

func (noGuards) guard(*server, net.Conn, time.Duration) guard { return noGuard{} }

func (noGuard) postpone() bool { return true }
func (noGuard) passed() bool   { return false }
func (noGuard) stop()          {}

// bare is for implementations of which only guard is of interest.
type bare struct{}

func (bare) listener(l net.Listener) net.Listener { return l }
func (bare) pending() int                         { return 0 }
func (bare) summary() string                      { return "" }
func (bare) stop()                                {}
