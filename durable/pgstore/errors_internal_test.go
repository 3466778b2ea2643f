package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// TestFailure gives errors of the server their kinds.
func TestFailure(t *testing.T) {
	t.Parallel()
	kinds := []error{driver.ErrUnavailable, driver.ErrFull, driver.ErrVersion, driver.ErrClosed}
	for _, test := range []struct {
		code, what string
		kind       error
		advice     string
	}{
		{"53100", `put in queue "q"`, driver.ErrFull, "the disk of the server is full"},
		{"53200", `put in queue "q"`, driver.ErrFull, "the server is out of memory"},
		{"53100", `ack in queue "q"`, driver.ErrUnavailable, "the disk of the server is full"}, // the call must succeed at last
		{"53100", `claim in queue "q"`, driver.ErrUnavailable, "the disk of the server is full"},
		{"53300", `put in queue "q"`, driver.ErrUnavailable, "too few resources"},
		{"28P01", `claim in queue "q"`, driver.ErrUnavailable, "rejects the user or the password"},
		{"57P01", `put in queue "q"`, driver.ErrUnavailable, ""},
		{"42P01", `put in queue "q"`, driver.ErrVersion, "call pgstore.Migrate"},
		{"42501", `put in queue "q"`, nil, "USAGE of the schema"},
		{"22003", `put in queue "q"`, nil, ""},
	} {
		server := &pgconn.PgError{Code: test.code, Message: "message of the server"}
		err := failure(t.Context(), test.what, fmt.Errorf("wrapped: %w", server))
		for _, kind := range kinds {
			assert.Equal(t, kind == test.kind, errors.Is(err, kind), "%v: %v", kind, err)
		}
		require.ErrorIs(t, err, server)
		require.ErrorContains(t, err, test.advice)
		require.ErrorContains(t, err, "pgstore: "+test.what+": ")
	}
	require.NoError(t, failure(t.Context(), "put", nil))
	require.ErrorIs(t, failure(t.Context(), "put", errors.New("of the network")), driver.ErrUnavailable)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(driver.ErrClosed)
	require.Equal(t, driver.ErrClosed, failure(ctx, "put", errors.New("of the network")))
}
