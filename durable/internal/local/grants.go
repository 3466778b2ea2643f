package local

import (
	"slices"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Grants remembers the last claim of each consumer of a partition: its number and the messages that
// it returned. A consumer whose answer was lost receives the same messages again, and an earlier
// claim that arrives later is rejected. Grants keeps the [driver.ClaimConsumers] consumers with the
// latest claims. The zero value is empty. Each method is O(c) for the c kept consumers, a constant.
type Grants struct {
	last []grant // ordered by claim, the newest last
}

type grant struct {
	consumer string
	seq      uint64 // number of the claim
	first    uint64 // token of the first message; the tokens of the others follow it
	ids      []string
}

// find returns the grant of a consumer, or nil.
func (g *Grants) find(consumer string) *grant {
	i := slices.IndexFunc(g.last, func(o grant) bool { return o.consumer == consumer })
	if consumer == "" || i < 0 {
		return nil
	}
	return &g.last[i]
}

// Admit records the number of a claim, and reports whether the claim may have an effect. It may not
// if the consumer has already received the answer to a later claim: see driver.Claim.Seq. A claim
// may be admitted more than once.
func (g *Grants) Admit(c *driver.Claim) bool {
	switch o := g.find(c.Consumer); {
	case o == nil && c.Repeat:
		g.add(grant{consumer: c.Consumer, seq: c.Seq})
	case o == nil:
	case c.Seq < o.seq:
		return false
	default:
		o.seq = c.Seq
	}
	return true
}

// Note records the messages that a claim returned. Their tokens are first, first+1 and so on.
func (g *Grants) Note(c *driver.Claim, first uint64, ids []string) {
	if len(ids) > 0 {
		g.add(grant{c.Consumer, c.Seq, first, ids})
	}
}

// add stores a grant and removes the previous grant of its consumer. A consumer without a name is
// not remembered.
func (g *Grants) add(n grant) {
	if n.consumer == "" {
		return
	}
	g.last = slices.DeleteFunc(g.last, func(o grant) bool { return o.consumer == n.consumer })
	if len(g.last) == driver.ClaimConsumers {
		g.last = slices.Delete(g.last, 0, 1)
	}
	g.last = append(g.last, n)
}

// Unseen returns the ids and tokens of the messages that the consumer of a claim was granted after
// the last token that it has seen.
func (g *Grants) Unseen(c *driver.Claim) (changes []driver.Change) {
	o := g.find(c.Consumer)
	if o == nil {
		return nil
	}
	for n, id := range o.ids {
		if token := o.first + uint64(n); token > c.Seen { //nolint:gosec // not negative
			changes = append(changes, driver.Change{ID: id, Token: token})
		}
	}
	return changes
}
