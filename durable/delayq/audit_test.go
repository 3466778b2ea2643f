package main

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// storeWithFaults is a store whose audits find faults.
type storeWithFaults struct{ durable.Store }

type backendWithFaults struct{ driver.Backend }

func (f storeWithFaults) Open(ctx context.Context, c driver.Config) (driver.Backend, error) {
	b, err := f.Store.Open(ctx, c)
	return backendWithFaults{b}, err
}

func (f backendWithFaults) Audit(_ context.Context, _ int, repair bool) (driver.AuditReport, error) {
	r := driver.AuditReport{Records: 10, Orphans: 2, Strays: 1, Wrong: 1}
	if repair {
		r.Repaired = 4
	}
	return r, nil
}

func (backendWithFaults) Lost(context.Context, int) (n uint64, damage, err error) { return 0, nil, nil }

func TestAuditFailsIfFaultsAreLeft(t *testing.T) {
	t.Parallel()
	audit := func(store durable.Store, args ...string) (string, error) {
		var out bytes.Buffer
		a := newApp(nil, &out, io.Discard)
		a.parse = opens(store)
		err := a.run(t.Context(), append([]string{"delayq", "-store", "memory:", "-partitions", "2", "audit"}, args...))
		return out.String(), err
	}
	sound := memstore.New(memstore.Options{})
	_, err := durable.Open(t.Context(), sound, durable.Options{Partitions: 2})
	require.NoError(t, err)
	_, err = audit(sound)
	require.NoError(t, err)
	out, err := audit(storeWithFaults{sound}, "-json")
	require.ErrorContains(t, err, "8 faults left; delayq audit -repair")
	assert.JSONEq(t, `{"records":20,"orphans":4,"strays":2,"unreadable":0,"wrong":2,"repaired":0}`, out)
	out, err = audit(storeWithFaults{sound}, "-repair")
	require.NoError(t, err)
	assert.Contains(t, out, "repaired")
}
