package memstore

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// claim ends expired leases and grants new ones, or returns again the messages that the consumer
// has not seen.
func (p *partition) claim(now time.Time, c *driver.Claim, limits local.DeadLimits) driver.Claimed {
	if !p.grants.Admit(c) {
		return driver.Claimed{Now: now, Paused: p.paused}
	}
	claimed := driver.Claimed{Now: now, Records: p.claimUnseen(now, c), Paused: p.paused}
	p.endLeases(now, c.MaxCrashes)
	p.trimDead(now, limits)
	if len(claimed.Records) == 0 && !p.paused {
		claimed.Records = p.claimNew(now, c)
	}
	claimed.Next, claimed.Lease = p.scheduled.firstAt(), p.leased.firstAt()
	p.hint()
	return claimed
}

// claimUnseen renews the leases of the messages of the consumer's last claim that the consumer has
// not seen.
func (p *partition) claimUnseen(now time.Time, c *driver.Claim) (records []driver.Record) {
	for _, unseen := range p.grants.Unseen(c) {
		if e := p.entries[unseen.ID]; e.holdsLease(&unseen) {
			p.lease(e, e.State, local.ClaimedUntil(now, c, e.State, e.Due))
			records = append(records, e.copy())
		}
	}
	return records
}

// claimNew leases messages in the order of their due times.
func (p *partition) claimNew(now time.Time, c *driver.Claim) (records []driver.Record) {
	horizon, size := local.Floor(now).Add(c.Horizon), 0
	var ids []string
	for len(records) < c.Max {
		e := p.scheduled.first()
		if e == nil || e.Due > horizon {
			break
		}
		size += len(e.Body)
		if size > c.MaxBytes && len(records) > 0 {
			break
		}
		p.token++
		e.Token, e.last, e.State = p.token, 0, driver.StateLeased
		if len(records) < c.Begin && e.Due <= local.Floor(now) {
			e.State = driver.StateFiring
		}
		p.lease(e, e.State, local.ClaimedUntil(now, c, e.State, e.Due))
		records = append(records, e.copy())
		ids = append(ids, e.ID)
	}
	p.grants.Note(c, p.token-uint64(len(ids))+1, ids)
	return records
}

// endLeases ends expired leases, at most [driver.MaxBatch].
func (p *partition) endLeases(now time.Time, maxCrashes int) {
	for range driver.MaxBatch {
		e := p.leased.first()
		if e == nil || e.LeaseEnd > local.Floor(now) {
			return
		}
		if e.State == driver.StateFiring {
			e.Crashes++
			p.counters.Crashed++
			if maxCrashes > 0 && e.Crashes >= maxCrashes {
				p.bury(now, e)
				continue
			}
		}
		p.schedule(e, e.Due)
	}
}
