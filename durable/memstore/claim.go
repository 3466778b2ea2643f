package memstore

import (
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/local"
)

// claim ends leases and gives new ones.
func (p *partition) claim(now time.Time, c *driver.Claim, limits deadLimits) driver.Claimed {
	p.endLeases(now, c.MaxCrashes)
	p.trimDead(now, limits)
	claimed := driver.Claimed{Now: now}
	horizon, size := local.Floor(now).Add(c.Horizon), 0
	for len(claimed.Records) < c.Max {
		e := p.scheduled.first()
		if e == nil || e.Due > horizon {
			break
		}
		size += len(e.Body)
		if size > c.MaxBytes && len(claimed.Records) > 0 {
			break
		}
		p.token++
		e.Token, e.last = p.token, 0
		state := driver.StateLeased
		if len(claimed.Records) < c.Begin && e.Due <= local.Floor(now) {
			state = driver.StateFiring
		}
		p.lease(e, state, local.LeaseEnd(now, e.Due, c.Visibility))
		claimed.Records = append(claimed.Records, e.copy())
	}
	claimed.Next, claimed.Lease = p.scheduled.firstAt(), p.leased.firstAt()
	p.hint()
	return claimed
}

// endLeases ends leases that are over, at most a batch.
func (p *partition) endLeases(now time.Time, maxCrashes int) {
	for range driver.MaxBatch {
		e := p.leased.first()
		if e == nil || e.LeaseEnd > local.Floor(now) {
			return
		}
		if e.State == driver.StateFiring {
			e.Crashes++
			p.seen.Crashed++
			if maxCrashes > 0 && e.Crashes >= maxCrashes {
				p.bury(now, e)
				continue
			}
		}
		p.schedule(e, e.Due)
	}
}
