package durable

import (
	"context"
	"fmt"
	"iter"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// List iterates over the messages in one state, partition by partition, and in each in the order of their times. [StateLeased] stands for
// leased and firing messages; [StateFiring] is [ErrInvalid]. List reads a page at a time; what changes meanwhile may be missed or
// seen twice. An error ends it.
func (q *Queue) List(ctx context.Context, state State) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := q.usable(ctx)
		if err == nil && state != StateScheduled && state != StateLeased && state != StateDead {
			err = fmt.Errorf("durable: list: %w state %v: %v, %v (firing messages too) and %v are accepted",
				ErrInvalid, state, StateScheduled, StateLeased, StateDead)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		for i := range q.parts {
			if !q.listPart(ctx, i, state, yield) {
				return
			}
		}
	}
}

func (q *Queue) listPart(ctx context.Context, part int, state State, yield func(Record, error) bool) bool {
	for cursor := ""; ; {
		records, next, err := q.backend.List(ctx, part, state, cursor, driver.MaxBatch)
		if err != nil {
			yield(Record{}, fmt.Errorf("durable: list partition %d: %w", part, err))
			return false
		}
		for i := range records {
			if !yield(newRecord(&records[i]), nil) {
				return false
			}
		}
		if cursor = next; cursor == "" {
			return true
		}
	}
}
