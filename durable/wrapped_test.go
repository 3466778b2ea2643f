package durable_test

import (
	"context"

	"github.com/timingwheel-go/timingwheel/durable"
)

// wrapped is a store whose backends do something else as well.
type wrapped struct {
	durable.Store
	wrap func(durable.Backend) durable.Backend
}

func (s wrapped) Open(ctx context.Context, c durable.Config) (durable.Backend, error) {
	b, err := s.Store.Open(ctx, c)
	return s.wrap(b), err
}
