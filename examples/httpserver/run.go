package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
)

// limiter is an implementation of request deadlines.
type limiter struct {
	name    string
	lenient bool // a late answer may pass
	limit   func(http.Handler) http.Handler
}

// run runs the clients with the three implementations of deadlines, and then with the idle timeout.
// It prints the figures and returns an error with the faults.
func run(ctx context.Context, cfg config, w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return err
	}
	defer tw.Stop()
	limiters := []limiter{
		{"the wheel", false, func(h http.Handler) http.Handler { return deadline(tw.WithTimeout, cfg.timeout, refusal, h) }},
		{"context.WithTimeout", false, func(h http.Handler) http.Handler { return deadline(context.WithTimeout, cfg.timeout, refusal, h) }},
		// If the handler returns at the deadline, http.TimeoutHandler may send either answer.
		{"http.TimeoutHandler", true, func(h http.Handler) http.Handler { return http.TimeoutHandler(h, cfg.timeout, refusal) }},
	}
	faults := &fault.List{}
	t := figures.Table(w, 2, 12, "deadlines by", "requests", "answered", "too late", "503", "delayed", "answer p50", "p99", "max", "503 lateness p50", "p99", "max")
	for _, c := range limiters {
		if ctx.Err() != nil {
			break
		}
		l, err := runClients(ctx, cfg, c, faults)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		t.AppendRow(l.row(c.name))
	}
	t.Render()
	if ctx.Err() == nil {
		u, err := runUploads(ctx, cfg, idleOn(tw, cfg.timeout), faults)
		if err != nil {
			return fmt.Errorf("uploads: %w", err)
		}
		if ctx.Err() == nil {
			u.checkCounts(faults, cfg.clients)
			u.print(w, cfg.clients)
		}
	}
	faults.Check(tw.Len() == 0, "%d deadlines are pending although all requests have been answered", tw.Len())
	if err := faults.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil { // some answers are missing
		fmt.Fprintln(w, "interrupted: the answers until then were correct")
		return nil
	}
	fmt.Fprintf(w, "PASS: each request had one answer, each slow one on the wheel a 503, none before %v; stalled uploads were cut, none before %v without a byte\n", cfg.timeout, cfg.timeout)
	return nil
}

// runClients runs the clients against a server and compares the counters of both.
func runClients(ctx context.Context, cfg config, c limiter, faults *fault.List) (*load, error) {
	s, err := start(ctx, cfg, c.limit)
	if err != nil {
		return nil, err
	}
	l := send(ctx, cfg, s.url, c.lenient, faults)
	closing, cancel := context.WithTimeout(context.Background(), s.maxWait+10*time.Second)
	defer cancel()
	if err := s.close(closing); err != nil {
		return nil, fmt.Errorf("handlers are still running: %w", err)
	}
	if ctx.Err() == nil { // otherwise the counters differ
		if c.lenient {
			l.waitForHandlers(closing, s)
		}
		l.checkCounts(c.name, s)
	}
	return l, nil
}

// waitForHandlers waits for handlers that http.TimeoutHandler has left running. On a busy machine a
// handler may begin after its client has received the 503.
func (l *load) waitForHandlers(ctx context.Context, s *server) {
	for ctx.Err() == nil && (s.handled() != l.total() || s.expired.Load() != s.waited()) {
		time.Sleep(time.Millisecond)
	}
}

func (l *load) total() (sent int64) {
	for k := range kinds {
		sent += l.sent[k].Load()
	}
	return sent
}

func (s *server) handled() (begun int64) {
	for k := range kinds {
		begun += s.begun[k].Load()
	}
	return begun
}

// waited returns the number of handlers that wait for their deadline.
func (s *server) waited() int64 { return s.begun[waiting].Load() + s.begun[upstream].Load() }

// checkCounts checks that no request was lost or served twice between the clients and the handlers,
// and that the handlers have seen their deadlines. A request that was delayed by the machine may
// end before it reaches the second server, so the last two checks are bounds.
func (l *load) checkCounts(name string, s *server) {
	for k := range kinds {
		l.faults.Check(s.begun[k].Load() == l.sent[k].Load(), "%s, %v: %d requests sent, %d handled", name, k, l.sent[k].Load(), s.begun[k].Load())
	}
	l.faults.Check(l.answered.Load()+l.tooLate.Load()+l.refused.Load() == l.total(), "%s: %d requests, but %d answered, %d too late, and %d refused",
		name, l.total(), l.answered.Load(), l.tooLate.Load(), l.refused.Load())
	// A busy machine may delay some requests, or all of a few. If it delays all of many, the
	// deadline is wrong.
	l.faults.Check(l.delayed.Load() < l.sent[quick].Load() || l.sent[quick].Load() < 50, "%s: none of %d quick requests was answered", name, l.delayed.Load())
	waited := s.waited()
	l.faults.Check(s.expired.Load() == waited, "%s: %d handlers waited for their deadline, but %d have seen it", name, waited, s.expired.Load())
	l.faults.Check(s.upstreams.Load() <= s.begun[upstream].Load(), "%s: the second server saw the end of %d requests, but the first one sent %d",
		name, s.upstreams.Load(), s.begun[upstream].Load())
	l.faults.Check(s.begun[upstream].Load() == 0 || s.upstreams.Load() > 0, "%s: no deadline reached the second server", name)
}

// row returns a row of the table.
func (l *load) row(name string) table.Row {
	return table.Row{name, figures.Comma(int(l.total())), figures.Comma(int(l.answered.Load())), figures.Comma(int(l.tooLate.Load())),
		figures.Comma(int(l.refused.Load())), figures.Comma(int(l.delayed.Load())),
		figures.Millis(l.quick.At(50)), figures.Millis(l.quick.At(99)), figures.Millis(l.quick.At(100)),
		figures.Millis(l.late.At(50)), figures.Millis(l.late.At(99)), figures.Millis(l.late.At(100))}
}
