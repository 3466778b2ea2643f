// Delayqueue runs jobs that become due one after the other. Producers push jobs with a delay,
// workers take those that are due, and a job that fails is pushed once more, with a longer delay
// each time.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"go.uber.org/atomic"
)

const (
	producers = 4
	workers   = 3
	jobsEach  = 250
	attempts  = 4
	longest   = 300 * time.Millisecond // before the first attempt
	backoff   = 50 * time.Millisecond  // doubled with each attempt
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// job belongs to whoever holds it: a producer, the queue, or the worker that took it.
type job struct {
	due      time.Time
	attempts int
	failures int // how many attempts are going to fail
	early    int // attempts that began before they were due
}

type line struct {
	taken      atomic.Int64                 // first, where 32-bit systems align it
	queue      timingwheel.DelayQueue[*job] // its zero value is ready to use
	unfinished sync.WaitGroup
}

func (l *line) push(j *job, delay time.Duration) {
	j.due = time.Now().Add(delay)
	l.queue.PushAt(j, j.due)
}

func run(w io.Writer) error {
	l := &line{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() { l.work(ctx) })
	}

	var all []*job
	var producing sync.WaitGroup
	for range producers {
		mine := make([]*job, jobsEach)
		for i := range mine {
			mine[i] = &job{failures: i % attempts}
		}
		all = append(all, mine...)
		l.unfinished.Add(len(mine))
		producing.Go(func() {
			for _, j := range mine {
				l.push(j, rand.N(longest))
			}
		})
	}
	producing.Wait()
	l.unfinished.Wait() // every job has succeeded
	cancel()            // which ends the workers
	working.Wait()
	return check(w, all, int(l.taken.Load()), l.queue.Len())
}

// work takes jobs until ctx ends.
func (l *line) work(ctx context.Context) {
	for j := range l.queue.All(ctx) {
		l.taken.Inc()
		if time.Now().Before(j.due) {
			j.early++
		}
		j.attempts++
		if j.attempts > j.failures {
			l.unfinished.Done()
			continue
		}
		l.push(j, backoff<<(j.attempts-1))
	}
}

func check(w io.Writer, all []*job, taken, left int) error {
	var errs []error
	sum := 0
	for i, j := range all {
		sum += j.attempts
		if j.attempts != j.failures+1 || j.early > 0 {
			errs = append(errs, fmt.Errorf("job %d: %d attempts for %d failures, %d of them early", i, j.attempts, j.failures, j.early))
		}
	}
	if taken != sum || left != 0 {
		errs = append(errs, fmt.Errorf("%d taken for %d attempts, %d left", taken, sum, left))
	}
	fmt.Fprintf(w, "%d jobs done by %d workers in %d attempts, none of them early\n", len(all), workers, sum)
	return errors.Join(errs...)
}
