package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/storeurl"
	"golang.org/x/sync/errgroup"
)

// outcome is what a run has come to.
type outcome struct {
	cfg         config // with what was filled in
	interrupted bool
	verdict     verdict
	took        time.Duration
	journal     string // its path, where it was kept
}

// run does all of it. A run that is interrupted is no error, and is not judged.
func run(ctx context.Context, cfg config, stderr io.Writer) (out outcome, err error) {
	begin := time.Now()
	dir, err := os.MkdirTemp("", "orders-durable-")
	if err != nil {
		return out, err
	}
	defer func() {
		if err != nil || out.interrupted || len(out.verdict.faults) == 0 {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if cfg.store == "" {
		cfg.store = "file:" + filepath.Join(dir, "queue.db")
	}
	if cfg.seed == 0 {
		cfg.seed = uint64(begin.UnixNano())
	}
	out = outcome{cfg: cfg, journal: filepath.Join(dir, "journal.jsonl")}
	if err := mustBeEmpty(ctx, cfg.store, cfg.queue); err != nil {
		if out.interrupted = ctx.Err() != nil; out.interrupted {
			return out, nil
		}
		return out, err
	}
	err = out.fill(ctx, stderr)
	out.took = time.Since(begin)
	return out, err
}

// fill plays and judges.
func (o *outcome) fill(ctx context.Context, stderr io.Writer) error {
	answers, playErr := play(ctx, o.cfg, o.journal, stderr)
	book, err := readBook(o.journal)
	if err == nil {
		o.verdict = judge(o.cfg, book, answers)
		err = o.leave(book, playErr == nil)
	}
	if o.interrupted = errors.Is(playErr, errInterrupted); o.interrupted {
		return err
	}
	return errors.Join(playErr, err)
}

var errInterrupted = errors.New("interrupted")

// play lets the customers come, and the consumers be killed, and returns what the customers were told.
func play(ctx context.Context, cfg config, path string, stderr io.Writer) (answers map[string]bool, err error) {
	journal, err := openJournal(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, journal.close()) }()
	consumers := newSupervisor(job{cfg.store, cfg.queue, path}, stderr)
	s := &shop{cfg: cfg, journal: journal, timeouts: remote{consumers}, answers: make(map[string]bool)}
	if !isFile(cfg.store) {
		q, closeQueue, openErr := openQueue(ctx, cfg.store, cfg.queue, func(err error) { fmt.Fprintf(stderr, "shop: %v\n", err) })
		if openErr != nil {
			return nil, openErr
		}
		defer func() { err = errors.Join(err, closeQueue()) }()
		s.timeouts = q
	}
	rng := rand.New(rand.NewPCG(cfg.seed, 0))
	customers, kills := draw(rng, cfg), moments(rng, cfg.kills, cfg.over+cfg.timeout)
	err = s.open(ctx, consumers, customers, kills)
	return s.answers, err
}

// open runs the shop and its consumers until the shop has finished, one of them fails, or ctx ends: that is errInterrupted.
func (s *shop) open(ctx context.Context, consumers *supervisor, customers []customer, kills []time.Duration) error {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	finished, consumed := make(chan struct{}), make(chan error, 1)
	go func() {
		err := consumers.run(running, kills, finished)
		end(err) // so that the shop does not wait for a consumer
		consumed <- err
	}()
	err := s.trade(running, customers, consumers.quiet)
	if err != nil {
		end(err)
	}
	close(finished)
	if failure := <-consumed; failure != nil {
		return failure // if the shop has failed as well, then because of it
	}
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// isFile reports whether only one process at a time can open the store.
func isFile(url string) bool { return strings.HasPrefix(strings.ToLower(url), "file:") }

// leave looks at what is left of the queue when all processes have closed it. A run that has not finished takes its messages
// back, so that the next one finds an empty queue.
func (o *outcome) leave(b book, finished bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return withQueue(ctx, o.cfg.store, o.cfg.queue, func(q direct) error {
		if !finished {
			return takeBack(ctx, q, b)
		}
		left, err := q.left(ctx)
		if err != nil {
			return err
		}
		audit, err := q.Audit(ctx, false)
		if err != nil {
			return err
		}
		if left > 0 || audit.Orphans > 0 || audit.Strays > 0 {
			o.verdict.fault("the queue in %s is left with %d messages, %d orphans and %d strays",
				storeurl.Redact(o.cfg.store), left, audit.Orphans, audit.Strays)
		}
		return nil
	})
}

// takeBack cancels the messages of all orders, many at a time, so that they share calls of the store.
func takeBack(ctx context.Context, q direct, b book) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(driver.MaxBatch)
	for id := range b.orders {
		g.Go(func() error {
			_, err := q.Cancel(ctx, id)
			return err
		})
	}
	return g.Wait()
}
