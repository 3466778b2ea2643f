package storeurl

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

func TestOpenCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	passOne(t, "redis-cluster://"+strings.Join(cluster.ClusterOptions().Addrs, ","))
}

func TestOpenPostgres(t *testing.T) {
	t.Parallel()
	url := pgtest.Shared(t).Database(t)
	for schema, raw := range map[string]string{"timingwheel": url, "jobs": url + "&schema=jobs"} {
		store, err := Open(strings.Replace(raw, "postgres:", "PostgreSQL:", 1), Use{})
		require.NoError(t, err)
		p := store.(*Postgres)
		assert.Equal(t, schema, p.Schema)
		for _, want := range []bool{true, false} {
			changed, err := p.Migrate(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, changed)
		}
		require.NoError(t, store.Close())
		_, err = p.Migrate(t.Context())
		require.Error(t, err, "the pool is closed")
		passOne(t, raw)
	}
}

func TestOpenSentinel(t *testing.T) {
	t.Parallel()
	o := redistest.StartSentinel(t, redistest.SentinelOptions{}).FailoverOptions()
	passOne(t, "redis-sentinel://"+strings.Join(o.SentinelAddrs, ",")+"/"+url.PathEscape(o.MasterName)+"/1")
}
