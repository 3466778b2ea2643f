package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
	"github.com/timingwheel-go/timingwheel/examples/internal/latency"
)

// load has the counters of the clients.
type load struct {
	sent     [kinds]atomic.Int64
	answered atomic.Int64 // by the handler
	refused  atomic.Int64 // with 503
	delayed  atomic.Int64 // refused although the handler is quick: the machine was too busy
	tooLate  atomic.Int64 // answered by the handler after the deadline

	lenient bool // answers after the deadline are not a fault
	url     string
	timeout time.Duration
	client  *http.Client
	quick   *latency.Recorder // times of quick answers
	late    *latency.Recorder // from the deadline until the 503
	faults  *fault.List
}

// send sends the requests from all clients and returns when each has its answer or ctx is done.
func send(ctx context.Context, cfg config, url string, lenient bool, faults *fault.List) *load {
	l := &load{lenient: lenient, url: url, timeout: cfg.timeout, client: newClient(cfg.clients), quick: latency.New(), late: latency.New(), faults: faults}
	defer l.client.CloseIdleConnections()
	var clients sync.WaitGroup
	for c := range cfg.clients {
		share := cfg.requests / cfg.clients
		if c < cfg.requests%cfg.clients {
			share++
		}
		rng := rand.New(rand.NewPCG(cfg.seed, uint64(c)))
		clients.Go(func() {
			for i := 0; i < share && ctx.Err() == nil; i++ {
				l.request(ctx, cfg.draw(rng), fmt.Sprintf("%d-%d", c, i))
			}
		})
	}
	clients.Wait()
	return l
}

// draw returns the kind of the next request.
func (cfg config) draw(rng *rand.Rand) kind {
	if rng.Float64()*100 >= cfg.slow {
		return quick
	}
	return 1 + kind(rng.IntN(int(kinds-1)))
}

// request sends one request and checks the answer.
func (l *load) request(ctx context.Context, k kind, id string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+k.path()+"?id="+id, nil)
	if err != nil {
		l.faults.Add("%v %s: %v", k, id, err)
		return
	}
	begin := time.Now()
	response, err := l.client.Do(r)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	took := time.Since(begin)
	if ctx.Err() != nil {
		return // interrupted
	}
	l.sent[k].Inc()
	if err != nil {
		l.faults.Add("%v %s: no answer: %v", k, id, err)
		return
	}
	l.check(k, id, response.StatusCode, string(body), took)
}

// check checks an answer. The client starts its clock before the server, so a 503 that is early for
// the client is early.
func (l *load) check(k kind, id string, code int, body string, took time.Duration) {
	switch {
	case code == http.StatusServiceUnavailable && body != refusal:
		l.faults.Add("%v %s: 503 with the body %q", k, id, body)
	case code == http.StatusServiceUnavailable && took < l.timeout:
		l.faults.Add("%v %s: 503 after %v, before the deadline", k, id, took)
	case code == http.StatusServiceUnavailable:
		l.refused.Inc()
		l.late.Record(took - l.timeout)
		if k == quick {
			l.delayed.Inc()
		}
	case l.lenient && took >= l.timeout && ((k == waiting || k == ignoring) && code == http.StatusOK || k == upstream && code == http.StatusBadGateway):
		l.tooLate.Inc()
	case k != quick:
		l.faults.Add("%v %s: %d %q after %v instead of 503", k, id, code, body, took)
	case code != http.StatusOK || body != "done: "+k.path()+" "+id:
		l.faults.Add("%v %s: %d %q", k, id, code, body)
	default:
		l.answered.Inc()
		l.quick.Record(took)
	}
}
