package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/figures"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

const (
	pieces  = 20 // of a complete upload
	perIdle = 8  // pieces in one idle timeout; a complete upload takes longer
	stallAt = 2  // pieces of an upload that stalls
)

// uploads has the counters of slow uploads. Most uploads continue, for longer than the idle
// timeout, and some stall.
type uploads struct {
	answered atomic.Int64
	cut      atomic.Int64
	delayed  atomic.Int64      // cut while the client was sending: the machine was too busy
	late     *latency.Recorder // from the end of the idle timeout and its quarter until the client saw the cut
}

// runUploads runs slow clients against a server with an idle timeout.
func runUploads(ctx context.Context, cfg config, limit func(http.Handler) http.Handler, faults *fault.List) (*uploads, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: limit(http.HandlerFunc(receive)), ReadHeaderTimeout: time.Minute}
	// Returns after Shutdown; if it fails earlier, the requests fail too.
	go func() { _ = server.Serve(l) }()
	u := &uploads{late: latency.New()}
	var clients sync.WaitGroup
	for i := range cfg.clients {
		clients.Go(func() { u.send(ctx, cfg, l.Addr().String(), i%3 == 0, faults) })
	}
	clients.Wait()
	closing, cancel := context.WithTimeout(context.Background(), cfg.maxWait+10*time.Second)
	defer cancel()
	return u, server.Shutdown(closing)
}

// receive is a handler that reads the body and answers with its length.
func receive(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // the connection is cut
	}
	fmt.Fprint(w, n)
}

// send sends one upload in pieces and checks the answer. It uses a socket, because an [http.Client]
// would wait for a stalled body.
func (u *uploads) send(ctx context.Context, cfg config, address string, stalls bool, faults *fault.List) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() == nil {
			faults.Add("upload: %v", err)
		}
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_ = c.SetDeadline(time.Now().Add(cfg.timeout + cfg.maxWait))
	n := pieces
	if stalls {
		n = stallAt
	}
	begin := time.Now()
	_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", pieces)
	last := begin
	for i := 0; i < n && err == nil; i++ {
		time.Sleep(cfg.timeout / perIdle)
		last = time.Now()
		_, err = io.WriteString(c, "x")
	}
	var answer []byte
	if err == nil {
		answer, err = answerOf(c)
	}
	end := time.Now()
	if ctx.Err() == nil { // not interrupted
		u.check(cfg.timeout+cfg.timeout/4, stalls, end.Sub(begin), end.Sub(last), string(answer), err, faults)
	}
}

// answerOf reads the whole answer of the server.
func answerOf(c net.Conn) ([]byte, error) {
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// check checks the end of an upload, which idle cuts after timeout. took is the time since its
// beginning, quiet the time since its last piece. On a machine that stalls, the server may have
// read only the header. So a cut is certainly early only if took is less than the timeout.
func (u *uploads) check(timeout time.Duration, stalls bool, took, quiet time.Duration, answer string, err error, faults *fault.List) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		faults.Add("upload: neither answered nor cut after %v", took)
	case err != nil && took < timeout:
		faults.Add("upload: cut after %v, before the idle timeout", took)
	case err != nil && stalls && quiet >= timeout:
		u.cut.Inc()
		u.late.Record(quiet - timeout)
	case err != nil:
		u.delayed.Inc()
	case stalls:
		faults.Add("upload: answered %q although it stalled", answer)
	case answer != fmt.Sprint(pieces):
		faults.Add("upload: answered %q instead of %d", answer, pieces)
	default:
		u.answered.Inc()
	}
}

// print prints the figures.
func (u *uploads) print(w io.Writer, n int) {
	t := figures.Table(w, 2, 8, "idle timeout by", "uploads", "answered", "cut", "delayed", "lateness of cut p50", "p99", "max")
	t.AppendRow(table.Row{"the wheel", figures.Comma(n),
		figures.Comma(int(u.answered.Load())), figures.Comma(int(u.cut.Load())), figures.Comma(int(u.delayed.Load())),
		figures.Millis(u.late.At(50)), figures.Millis(u.late.At(99)), figures.Millis(u.late.At(100))})
	t.Render()
}

// checkCounts checks that stalled uploads were cut and others were answered.
func (u *uploads) checkCounts(faults *fault.List, n int) {
	faults.Check(u.answered.Load()+u.cut.Load()+u.delayed.Load() == int64(n), "%d uploads, but %d answered, %d cut and %d delayed",
		n, u.answered.Load(), u.cut.Load(), u.delayed.Load())
	// A busy machine may delay some uploads. If it delays all of many, the idle timeout is wrong.
	faults.Check(u.delayed.Load() < int64(n) || n < 50, "each of %d uploads was cut while the client was sending", n)
	faults.Check(u.answered.Load() > 0 || n < 50, "none of %d uploads was answered", n)
}

// idleOn returns the middleware on a wheel.
func idleOn(tw *timingwheel.TimingWheel, d time.Duration) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler { return idle(tw, d, h) }
}
