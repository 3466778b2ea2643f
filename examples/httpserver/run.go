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

// contender is a way to limit the time of requests.
type contender struct {
	name    string
	lenient bool // it may let a late answer pass
	limit   func(http.Handler) http.Handler
}

// run tries the three ways one after the other, and then the idle timeout. It prints what they did,
// and returns an error if one was wrong.
func run(ctx context.Context, cfg config, w io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		return err
	}
	defer tw.Stop()
	contenders := []contender{
		{"the wheel", false, func(h http.Handler) http.Handler { return deadline(tw.WithTimeout, cfg.timeout, refusal, h) }},
		{"context.WithTimeout", false, func(h http.Handler) http.Handler { return deadline(context.WithTimeout, cfg.timeout, refusal, h) }},
		// Where the handler's end and the deadline are seen at the same time, it takes either.
		{"http.TimeoutHandler", true, func(h http.Handler) http.Handler { return http.TimeoutHandler(h, cfg.timeout, refusal) }},
	}
	faults := &fault.List{}
	t := figures.Table(w, 2, 12, "deadlines by", "requests", "answered", "too late", "503", "held up", "answer p50", "p99", "most", "503 late p50", "p99", "most")
	for _, c := range contenders {
		if ctx.Err() != nil {
			break
		}
		l, err := try(ctx, cfg, c, faults)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		t.AppendRow(l.row(c.name))
	}
	t.Render()
	if ctx.Err() == nil {
		u, err := tryUploads(ctx, cfg, idleBy(tw, cfg.timeout), faults)
		if err != nil {
			return fmt.Errorf("uploads: %w", err)
		}
		if ctx.Err() == nil {
			u.compare(faults, cfg.clients)
			u.show(w, cfg.clients)
		}
	}
	faults.Check(tw.Len() == 0, "%d deadlines are pending though all requests have been answered", tw.Len())
	if err := faults.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil { // the clients have not seen all answers
		fmt.Fprintln(w, "interrupted: what the clients had seen by then was right")
		return nil
	}
	fmt.Fprintf(w, "RIGHT: each request has one answer, each slow one that the wheel limits a 503, and none of these came before %v; uploads that stall were cut, none before %v without a byte\n", cfg.timeout, cfg.timeout)
	return nil
}

// try lets the clients loose on a server and compares what both have counted.
func try(ctx context.Context, cfg config, c contender, faults *fault.List) (*load, error) {
	s, err := start(ctx, cfg, c.limit)
	if err != nil {
		return nil, err
	}
	l := send(ctx, cfg, s.url, c.lenient, faults)
	closing, cancel := context.WithTimeout(context.Background(), s.enough+10*time.Second)
	defer cancel()
	if err := s.close(closing); err != nil {
		return nil, fmt.Errorf("handlers are still at work: %w", err)
	}
	if ctx.Err() == nil { // else the clients have not seen all that the server did
		if c.lenient {
			l.settle(closing, s)
		}
		l.compare(c.name, s)
	}
	return l, nil
}

// settle waits for handlers that http.TimeoutHandler has left behind: on a busy machine one may not
// even have begun when its client has the 503.
func (l *load) settle(ctx context.Context, s *server) {
	for ctx.Err() == nil && (s.handled() != l.total() || s.told.Load() != s.waited()) {
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

// waited is how many handlers have waited for their deadline, or are about to.
func (s *server) waited() int64 { return s.begun[patient].Load() + s.begun[upstream].Load() }

// compare checks that no request was lost, or served twice, between the clients and the handlers,
// and that deadlines reached all who ought to know. What the machine held up may have ended before
// it could wait, so the last two are bounds.
func (l *load) compare(name string, s *server) {
	for k := range kinds {
		l.faults.Check(s.begun[k].Load() == l.sent[k].Load(), "%s, %v: %d requests sent, %d handled", name, k, l.sent[k].Load(), s.begun[k].Load())
	}
	l.faults.Check(l.answered.Load()+l.tooLate.Load()+l.refused.Load() == l.total(), "%s: %d requests, but %d answered, %d too late, and %d refused",
		name, l.total(), l.answered.Load(), l.tooLate.Load(), l.refused.Load())
	// A busy machine may be too late for some, or for all of a few; but where none of very many is
	// in time it is the deadline that is wrong.
	l.faults.Check(l.heldUp.Load() < l.sent[quick].Load() || l.sent[quick].Load() < 50, "%s: none of %d quick requests was answered", name, l.heldUp.Load())
	waited := s.waited()
	l.faults.Check(s.told.Load() == waited, "%s: %d handlers waited for their deadline, %d have seen it", name, waited, s.told.Load())
	l.faults.Check(s.upstreams.Load() <= s.begun[upstream].Load(), "%s: the second server saw %d requests end, the first sent %d",
		name, s.upstreams.Load(), s.begun[upstream].Load())
	l.faults.Check(s.begun[upstream].Load() == 0 || s.upstreams.Load() > 0, "%s: no deadline has reached the second server", name)
}

// row is what the table shows.
func (l *load) row(name string) table.Row {
	row := table.Row{name, figures.Comma(int(l.total())), figures.Comma(int(l.answered.Load())), figures.Comma(int(l.tooLate.Load())),
		figures.Comma(int(l.refused.Load())), figures.Comma(int(l.heldUp.Load()))}
	for _, p := range []float64{50, 99, 100} {
		row = append(row, figures.Millis(l.quick.At(p)))
	}
	for _, p := range []float64{50, 99, 100} {
		row = append(row, figures.Millis(l.late.At(p)))
	}
	return row
}
