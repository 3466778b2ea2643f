package durable_test

import (
	"context"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// wrapped is a store whose backends do something else as well.
type wrapped struct {
	durable.Store
	wrap func(driver.Backend) driver.Backend
}

func (s wrapped) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, c)
	return s.wrap(b), err
}
