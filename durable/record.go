package durable

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Store keeps queues: in memory (package memstore), in a file (package boltstore) or on Redis
// (package redisstore). One of these packages makes it, and [Open] takes it. A store may hold
// several queues. What a store implements is described in package driver.
type Store = driver.Store

// State is where a message is.
type State = driver.State

// The states of a message.
const (
	StateScheduled = driver.StateScheduled
	StateLeased    = driver.StateLeased // claimed ahead of time by a consumer, which has not begun it
	StateFiring    = driver.StateFiring // begun: its handler runs, or may
	StateDead      = driver.StateDead   // kept as a dead letter
)

// Record is a message as the store holds it. Times are those of the store's clock, in milliseconds.
type Record struct {
	ID          string
	Body        []byte
	Enqueued    time.Time
	Due         time.Time // of its next delivery
	MaxAttempts int       // deliveries that end in an error before it is dead
	Attempts    int       // deliveries that ended in an error
	Crashes     int       // deliveries that ended with the lease
	State       State
	Token       uint64    // of the last claim; 0 if there was none
	LeaseEnd    time.Time // of a leased or firing message, else zero
	Died        time.Time // of a dead letter, else zero
	Reason      string    // the last error, at most [driver.MaxReason] bytes
}

func newRecord(r *driver.Record) Record {
	return Record{
		ID: r.ID, Body: r.Body, Enqueued: r.Enqueued.Time(), Due: r.Due.Time(), MaxAttempts: r.MaxAttempts,
		Attempts: r.Attempts, Crashes: r.Crashes, State: r.State, Token: r.Token,
		LeaseEnd: timeOf(r.LeaseEnd), Died: timeOf(r.Died), Reason: r.Reason,
	}
}

// timeOf returns the time of an instant, and the zero time for 0, which stands for none.
func timeOf(i driver.Instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return i.Time()
}

// Counts is what a partition or a queue holds, and what it has seen since it was made.
type Counts struct {
	Now       time.Time // of the store's clock
	Scheduled int64     // due ones included
	Due       int64     // scheduled, and their time has come
	InFlight  int64     // leased or firing
	Dead      int64
	DeadBytes int64     // of the bodies of dead letters
	NextDue   time.Time // zero if nothing is scheduled

	// Unreadable is the number of scheduled messages that a consumer has met and that this version of the program
	// cannot read: a newer version has enqueued them, or they are damaged. They stay in the queue, for a newer
	// version to deliver, do not hold up other messages, and are not among Scheduled.
	Unreadable int64

	Enqueued, Acked, Retried, Buried, Cancelled, Crashed uint64

	// Trimmed counts the dead letters that were dropped because of [Options].DeadLimit, DeadBytes or DeadAge.
	Trimmed uint64

	// Lost is the number of messages whose records are gone, because a Redis server has evicted
	// them or someone has deleted them: those that consumers and audits have removed from the
	// queue, and those that have not been removed yet.
	Lost uint64
}

func newCounts(c driver.Counts) Counts {
	return Counts{
		Now: c.Now.Time(), Scheduled: c.Scheduled, Due: c.Due, InFlight: c.InFlight, Dead: c.Dead,
		DeadBytes: c.DeadBytes, NextDue: timeOf(c.NextDue), Enqueued: c.Enqueued, Acked: c.Acked,
		Retried: c.Retried, Buried: c.Buried, Cancelled: c.Cancelled, Crashed: c.Crashed, Trimmed: c.Trimmed,
		Unreadable: c.Unreadable, Lost: c.Lost,
	}
}

// add adds the counts of a partition to those of the queue. Now becomes the latest, NextDue the
// earliest of all.
func (c *Counts) add(o Counts) {
	if o.Now.After(c.Now) {
		c.Now = o.Now
	}
	c.Scheduled += o.Scheduled
	c.Due += o.Due
	c.InFlight += o.InFlight
	c.Dead += o.Dead
	c.DeadBytes += o.DeadBytes
	if c.NextDue.IsZero() || !o.NextDue.IsZero() && o.NextDue.Before(c.NextDue) {
		c.NextDue = o.NextDue
	}
	c.Enqueued += o.Enqueued
	c.Acked += o.Acked
	c.Retried += o.Retried
	c.Buried += o.Buried
	c.Cancelled += o.Cancelled
	c.Crashed += o.Crashed
	c.Trimmed += o.Trimmed
	c.Unreadable += o.Unreadable
	c.Lost += o.Lost
}

// AuditReport is what an audit has found.
type AuditReport = driver.AuditReport
