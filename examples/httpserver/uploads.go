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
	pieces  = 20 // of a whole upload
	perIdle = 8  // pieces in the time of the idle timeout, so a whole upload takes longer than that
	stallAt = 2  // pieces of an upload that stalls
)

// uploads is what clients saw that send slowly: most go on, which takes longer than the idle
// timeout, and some stall.
type uploads struct {
	answered atomic.Int64
	cut      atomic.Int64
	heldUp   atomic.Int64      // cut while the client still sent: the machine was too busy
	late     *latency.Recorder // from the idle timeout after the last piece until the client saw the cut
}

// tryUploads lets clients send to a server with an idle timeout.
func tryUploads(ctx context.Context, cfg config, limit func(http.Handler) http.Handler, faults *fault.List) (*uploads, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: limit(http.HandlerFunc(receive)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // fails when it is closed, or else requests fail, and the clients say so
	u := &uploads{late: latency.New()}
	var clients sync.WaitGroup
	for i := range cfg.clients {
		clients.Go(func() { u.send(ctx, cfg, l.Addr().String(), i%3 == 0, faults) })
	}
	clients.Wait()
	closing, cancel := context.WithTimeout(context.Background(), cfg.enough+10*time.Second)
	defer cancel()
	return u, server.Shutdown(closing)
}

// receive is a handler that reads the whole request and says how much that was.
func receive(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return // there is nobody to tell
	}
	fmt.Fprint(w, n)
}

// send sends one upload, piece by piece, and judges what becomes of it. An [http.Client] would wait
// for a body that stalls.
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
	_ = c.SetDeadline(time.Now().Add(cfg.timeout + cfg.enough))
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
	if ctx.Err() == nil { // else it was interrupted
		u.judge(cfg.timeout, stalls, end.Sub(begin), end.Sub(last), string(answer), err, faults)
	}
}

// answerOf reads the answer of the server to the end.
func answerOf(c net.Conn) ([]byte, error) {
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// judge checks what became of an upload. took is the time from its beginning to its end, quiet that
// from its last piece. The client's clock begins before the server's, so a cut that it sees before
// the timeout is early. On a machine that stands still the server may have read nothing but the
// head, so a cut is early for certain only if all of it took less than the timeout.
func (u *uploads) judge(timeout time.Duration, stalls bool, took, quiet time.Duration, answer string, err error, faults *fault.List) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		faults.Add("upload: neither answered nor cut after %v", took)
	case err != nil && took < timeout:
		faults.Add("upload: cut after %v, before the idle timeout", took)
	case err != nil && stalls && quiet >= timeout:
		u.cut.Inc()
		u.late.Record(quiet - timeout)
	case err != nil:
		u.heldUp.Inc()
	case stalls:
		faults.Add("upload: answered %q although it stalled", answer)
	case answer != fmt.Sprint(pieces):
		faults.Add("upload: answered %q instead of %d", answer, pieces)
	default:
		u.answered.Inc()
	}
}

// show prints the figures.
func (u *uploads) show(w io.Writer, n int) {
	t := figures.Table(w, 2, 8, "idle timeout by", "uploads", "answered", "cut", "held up", "cut late p50", "p99", "most")
	row := table.Row{"the wheel", figures.Comma(n)}
	for _, count := range []int64{u.answered.Load(), u.cut.Load(), u.heldUp.Load()} {
		row = append(row, figures.Comma(int(count)))
	}
	for _, p := range []float64{50, 99, 100} {
		row = append(row, figures.Millis(u.late.At(p)))
	}
	t.AppendRow(row)
	t.Render()
}

// compare checks that the idle timeout cuts what stalls and spares what goes on.
func (u *uploads) compare(faults *fault.List, n int) {
	faults.Check(u.answered.Load()+u.cut.Load()+u.heldUp.Load() == int64(n), "%d uploads, but %d answered, %d cut and %d held up",
		n, u.answered.Load(), u.cut.Load(), u.heldUp.Load())
	// A busy machine may be too late for some. If it is for all of very many, the idle timeout is
	// wrong.
	faults.Check(u.heldUp.Load() < int64(n) || n < 50, "each of %d uploads was cut while the client still sent", n)
	faults.Check(u.answered.Load() > 0 || n < 50, "none of %d uploads was answered", n)
}

// idleBy is the middleware under test.
func idleBy(tw *timingwheel.TimingWheel, d time.Duration) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler { return idle(tw, d, h) }
}
