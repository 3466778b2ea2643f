package local

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/transition"
)

// tx is a call in a partition.
type tx struct {
	p      *partition
	now    time.Time
	limits *driver.Config // of dead letters
	call   *Call          // begin and claim set Waits
}

// put stores messages.
func (t *tx) put(put *driver.Put) ([]driver.Status, error) {
	statuses := make([]driver.Status, len(put.Items))
	for i := range put.Items {
		var err error
		if statuses[i], err = t.putOne(&put.Items[i], put.Replace); err != nil {
			return nil, err
		}
	}
	return statuses, nil
}

func (t *tx) putOne(item *driver.PutItem, replace bool) (driver.Status, error) {
	p := t.p
	var at place
	var err error
	if item.ID > p.counters.maxID { // most generated ids are new and rise
		p.counters.maxID = item.ID
	} else {
		at, err = p.table.find(item.ID)
	}
	switch {
	case err != nil:
		return 0, err
	case at.kind == 0:
	case !replace && at.kind == kindDead:
		return driver.StatusDead, nil
	case !replace:
		return driver.StatusDuplicate, nil
	default:
		if l := p.leases.byID[item.ID]; l != nil && l.firing {
			return t.putFiring(l, item)
		}
		size := 0
		if at.kind == kindDead {
			old, err := p.table.read(at)
			if err != nil {
				return 0, err
			}
			size = len(old.msg.Body)
		}
		p.remove(at, size)
	}
	p.counters.Enqueued++
	r := &record{msg: driver.Record{
		ID: item.ID, Body: item.Body, Enqueued: transition.Floor(t.now), Due: transition.DueAt(t.now, item.At, item.Delay),
		MaxAttempts: item.MaxAttempts, State: driver.StateScheduled,
	}}
	transition.Plan(&r.msg, item.Repeat)
	p.add(r)
	return driver.StatusDone, nil
}

// putFiring replaces a firing message if both messages are recurring.
func (t *tx) putFiring(l *lease, item *driver.PutItem) (driver.Status, error) {
	r, err := t.p.table.read(l.place())
	if err != nil || l.marked() || item.Repeat == "" || r.msg.Repeat == "" {
		return driver.StatusFiring, err
	}
	t.p.counters.Enqueued++
	t.p.change()
	r.msg.Body, r.msg.MaxAttempts, r.msg.Enqueued = item.Body, item.MaxAttempts, transition.Floor(t.now)
	l.enqueued, l.replaced = min(l.enqueued, r.msg.Enqueued), max(l.replaced, r.msg.Enqueued)
	replan(t.p, l, r, item.Repeat, transition.DueAt(t.now, item.At, item.Delay))
	return driver.StatusDone, nil
}

// apply makes a transition of each message.
func (t *tx) apply(b *driver.Batch) ([]driver.Outcome, error) {
	outcomes := make([]driver.Outcome, len(b.Changes))
	for i := range b.Changes {
		c, o := &b.Changes[i], &outcomes[i]
		o.Now = t.now
		var err error
		switch b.Op {
		case driver.OpBegin:
			t.begin(b, c, o)
		case driver.OpExtend:
			t.extend(c, o)
		case driver.OpCancel, driver.OpReschedule, driver.OpRepeat:
			o.Status, err = t.cancelOrReschedule(b.Op, c)
		case driver.OpReplay, driver.OpPurge:
			o.Status, err = t.replayOrPurge(b.Op, c)
		default:
			o.Status, err = t.end(b.Op, c)
		}
		if err != nil {
			return nil, err
		}
	}
	if b.Op == driver.OpBury {
		return outcomes, t.p.trimDead(t.now, t.limits)
	}
	return outcomes, nil
}

func (t *tx) begin(b *driver.Batch, c *driver.Change, o *driver.Outcome) {
	l := t.p.leases.held(c)
	if l == nil {
		o.Status = driver.StatusLeaseLost
		return
	}
	o.Due = l.at
	switch {
	case l.firing:
	case t.p.counters.Paused:
		o.Status = driver.StatusPaused
		return
	case l.at > transition.Floor(t.now).Add(b.Lead):
		o.Status = driver.StatusEarly
		return
	default:
		l.firing = true
		t.p.table.setBegun(l.id)
	}
	o.Status = driver.StatusDone
	t.call.Waits = t.call.Waits || l.crashed
	if b.Visibility > 0 {
		t.p.leases.renew(l, transition.After(t.now, b.Visibility))
		o.Lease = l.end
	}
}

func (t *tx) extend(c *driver.Change, o *driver.Outcome) {
	l := t.p.leases.held(c)
	if l == nil {
		o.Status = driver.StatusLeaseLost
		return
	}
	lease := c.Delay
	if l.firing && c.Begun > 0 {
		lease = c.Begun
	}
	t.p.leases.renew(l, transition.LeaseEnd(t.now, l.at, lease))
	o.Status, o.Lease = driver.StatusDone, l.end
	if l.firing && l.marked() {
		o.Status = driver.StatusInterrupted
	}
}

// end ends a lease by a transition of its holder. An unbegun message can only be released.
func (t *tx) end(op driver.Op, c *driver.Change) (driver.Status, error) {
	p := t.p
	l := p.leases.held(c)
	switch {
	case l == nil:
		return t.repeat(op, c)
	case op == driver.OpRelease && !(l.firing && l.planned > l.at):
		p.endLease(l, op)
		return driver.StatusDone, nil
	case !l.firing:
		return driver.StatusLeaseLost, nil
	case l.marked() || op == driver.OpAck || op == driver.OpExpire:
		transition.Removes(&p.counters.Counters, op, c, l.marked(), "")
		p.drop(l.place(), 0)
		return driver.StatusDone, nil
	}
	r, err := p.table.read(l.place())
	switch {
	case err != nil:
		return 0, err
	case transition.Removes(&p.counters.Counters, op, c, false, r.msg.Repeat):
		p.drop(l.place(), 0)
		return driver.StatusDone, nil
	}
	r.msg.Token, r.last = c.Token, op
	transition.Settle(&p.counters.Counters, &r.msg, op, c, t.now)
	p.move(l.place(), r)
	return driver.StatusDone, nil
}

// repeat returns the status of a transition whose lease has ended. It is StatusDone if the
// transition has taken place and is the last one of its message.
func (t *tx) repeat(op driver.Op, c *driver.Change) (driver.Status, error) {
	r, err := t.p.table.load(c.ID)
	switch {
	case err != nil:
		return 0, err
	case (op == driver.OpAck || op == driver.OpExpire) && (r == nil || r.msg.State != driver.StateScheduled):
		return driver.StatusNotFound, nil
	case r == nil || c.Token == 0 || t.p.leases.byID[c.ID] != nil:
		return driver.StatusLeaseLost, nil
	}
	last, ok := t.p.leases.ended[c.ID]
	if !ok {
		last = endedLease{r.msg.Token, r.last}
	}
	if last != (endedLease{c.Token, op}) {
		return driver.StatusLeaseLost, nil
	}
	return driver.StatusDone, nil
}

// cancelOrReschedule cancels or reschedules a message that has not begun, and ends any lease.
func (t *tx) cancelOrReschedule(op driver.Op, c *driver.Change) (driver.Status, error) {
	from, err := t.p.table.find(c.ID)
	if err != nil || from.kind != kindScheduled {
		return driver.StatusNotFound, err
	}
	l := t.p.leases.byID[c.ID]
	var r *record
	if firing := l != nil && l.firing; firing || readsRecord(op, c) {
		r, err = t.p.table.read(from)
	}
	switch {
	case err != nil:
		return 0, err
	case r != nil && (r.msg.State == 0 || op == driver.OpCancel && c.Incarnation != 0 && c.Incarnation != r.msg.Enqueued):
		return driver.StatusNotFound, nil
	case l != nil && l.firing:
		return t.changeFiring(op, c, l, r), nil
	case op == driver.OpCancel:
		t.p.counters.Cancelled++
		t.p.drop(from, 0)
		return driver.StatusDone, nil
	}
	if r.last &= opCrash; op != driver.OpRepeat || c.Repeat != "" {
		r.msg.Due = transition.DueAt(t.now, c.At, c.Delay)
	}
	if l != nil {
		r.msg.Token = l.token
	} else if e, ok := t.p.leases.ended[c.ID]; ok {
		r.msg.Token, r.last = e.token, e.op
	}
	if op == driver.OpRepeat {
		r.msg.Repeat = c.Repeat
	}
	transition.Plan(&r.msg, r.msg.Repeat)
	t.p.move(from, r)
	return driver.StatusDone, nil
}

// changeFiring marks a firing message, or changes or ends its series, if the transition may.
func (t *tx) changeFiring(op driver.Op, c *driver.Change, l *lease, r *record) driver.Status {
	switch {
	case op == driver.OpCancel && c.Interrupt:
		replan(t.p, l, r, r.msg.Repeat, driver.Never)
		t.p.hints.send(driver.Hint{Partition: int(t.p.table.partition), ID: c.ID})
		return driver.StatusInterrupted
	case r.msg.Repeat == "" || op == driver.OpReschedule || op == driver.OpRepeat && l.marked():
		return driver.StatusFiring
	case c.Repeat == "":
		replan(t.p, l, r, "", r.msg.Planned)
	default:
		replan(t.p, l, r, c.Repeat, transition.DueAt(t.now, c.At, c.Delay))
	}
	if op == driver.OpCancel {
		return driver.StatusFiring
	}
	return driver.StatusDone
}

// replan stores a firing message with its next run, or marks it if that is at Never.
func replan(p *partition, l *lease, r *record, repeat string, planned driver.Instant) {
	r.msg.Repeat, r.msg.Planned, l.planned = repeat, planned, planned
	p.table.set(r)
}

// readsRecord reports whether a transition of a scheduled message needs more than its place.
func readsRecord(op driver.Op, c *driver.Change) bool {
	return op != driver.OpCancel || c.Incarnation != 0
}

// replayOrPurge replays or purges a dead letter, or replays a recurring message that waits until
// Never.
func (t *tx) replayOrPurge(op driver.Op, c *driver.Change) (driver.Status, error) {
	r, err := t.p.table.load(c.ID)
	if err != nil || r == nil {
		return driver.StatusNotFound, err
	}
	waits := op == driver.OpReplay && r.msg.Repeat != "" && r.msg.Due == driver.Never // no claim leases it
	switch {
	case !waits && r.msg.State != driver.StateDead || c.Incarnation != 0 && c.Incarnation != r.msg.Died:
		return driver.StatusNotFound, nil
	case op == driver.OpPurge:
		t.p.drop(r.place(), len(r.msg.Body))
		return driver.StatusDone, nil
	}
	from := r.place()
	r.last = 0
	transition.Replay(&r.msg, t.now, c.Delay)
	t.p.move(from, r)
	return driver.StatusDone, nil
}
