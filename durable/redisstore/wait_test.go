package redisstore_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// TestRepeatedPutWrites repeats a call. Servers from 7.2 on let WAIT return at once on a connection that has written nothing, so a
// repetition that only reads would report replicas that may not have the messages.
func TestRepeatedPutWrites(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	changed := regexp.MustCompile(`rdb_changes_since_last_save:\d+`)
	writes := func() string { return changed.FindString(client.Info(t.Context(), "persistence").Val()) }
	p := driver.Put{Call: calling("p", 1), Items: items("a", 2, 10, time.Hour)}
	first, err := q.Put(t.Context(), p)
	require.NoError(t, err)
	before := writes()
	require.NotEmpty(t, before)

	again, err := q.Put(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NotEqual(t, before, writes())

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	again, err = q.Put(t.Context(), p)
	require.NoError(t, err, "what is stored is stored, also when the memory is full")
	require.Equal(t, first, again)
	p.Call.Seq++
	_, err = q.Put(t.Context(), p)
	require.ErrorIs(t, err, driver.ErrFull)
}
