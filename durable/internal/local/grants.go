package local

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Grants remembers what the last claim of each consumer of a partition has given, so that a consumer whose answer was
// lost gets it again. It keeps [driver.ClaimConsumers] consumers, those whose claims came last. The zero value is empty.
type Grants struct {
	last []grant // the newest behind
}

type grant struct {
	consumer string
	first    uint64 // the token of the first message; the others follow it
	ids      []string
}

// Note remembers the messages that a claim has given, whose tokens are first, first+1 and so on. It is O(1) but for
// the few consumers that are kept. A consumer without a name is not remembered.
func (g *Grants) Note(consumer string, first uint64, ids []string) {
	if consumer == "" || len(ids) == 0 {
		return
	}
	g.last = slices.DeleteFunc(g.last, func(o grant) bool { return o.consumer == consumer })
	if len(g.last) == driver.ClaimConsumers {
		g.last = slices.Delete(g.last, 0, 1)
	}
	g.last = append(g.last, grant{consumer, first, ids})
}

// Unseen returns ids and tokens of the messages that a consumer was given after the token seen.
func (g *Grants) Unseen(consumer string, seen uint64) []driver.Change {
	i := slices.IndexFunc(g.last, func(o grant) bool { return o.consumer == consumer })
	if consumer == "" || i < 0 {
		return nil
	}
	var changes []driver.Change
	for n, id := range g.last[i].ids {
		if token := g.last[i].first + uint64(n); token > seen { //nolint:gosec // not negative
			changes = append(changes, driver.Change{ID: id, Token: token})
		}
	}
	return changes
}
