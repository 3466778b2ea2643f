// Delayqueue runs jobs when they become due. Producers push jobs with a delay, workers take the due
// jobs, and a job that fails is pushed again with a longer delay.
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
	longest   = 300 * time.Millisecond // delay before the first attempt
	backoff   = 50 * time.Millisecond  // doubles with each attempt
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// job has one owner at a time: a producer, the queue, or a worker.
type job struct {
	due      time.Time
	attempts int
	failures int // number of attempts that will fail
	early    int // attempts that began before they were due
}

type pipeline struct {
	taken      atomic.Int64                 // first field: aligned on 32-bit systems
	queue      timingwheel.DelayQueue[*job] // its zero value is ready to use
	unfinished sync.WaitGroup
}

func (p *pipeline) push(j *job, delay time.Duration) {
	j.due = time.Now().Add(delay)
	p.queue.PushAt(j, j.due)
}

func run(w io.Writer) error {
	p := &pipeline{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() { p.work(ctx) })
	}

	var all []*job
	var producing sync.WaitGroup
	for range producers {
		mine := make([]*job, jobsEach)
		for i := range mine {
			mine[i] = &job{failures: i % attempts}
		}
		all = append(all, mine...)
		p.unfinished.Add(len(mine))
		producing.Go(func() {
			for _, j := range mine {
				p.push(j, rand.N(longest))
			}
		})
	}
	producing.Wait()
	p.unfinished.Wait() // every job has succeeded
	cancel()            // ends the workers
	working.Wait()
	return check(w, all, int(p.taken.Load()), p.queue.Len())
}

// work takes jobs until ctx is done.
func (p *pipeline) work(ctx context.Context) {
	for j := range p.queue.All(ctx) {
		p.taken.Inc()
		if time.Now().Before(j.due) {
			j.early++
		}
		j.attempts++
		if j.attempts > j.failures {
			p.unfinished.Done()
			continue
		}
		p.push(j, backoff<<(j.attempts-1))
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
		errs = append(errs, fmt.Errorf("%d jobs taken for %d attempts, %d left", taken, sum, left))
	}
	fmt.Fprintf(w, "%d jobs done by %d workers in %d attempts, none of them early\n", len(all), workers, sum)
	return errors.Join(errs...)
}
