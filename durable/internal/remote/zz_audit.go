package remote

import (
	"context"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func (b *backend) Audit(context.Context, int, bool) (driver.AuditReport, error) {
	return driver.AuditReport{}, nil
}
