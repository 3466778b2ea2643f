package storeurl

import (
	"net/url"
	"strings"
	"testing"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

func TestOpenCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{})
	passOne(t, "redis-cluster://"+strings.Join(cluster.ClusterOptions().Addrs, ","))
}

func TestOpenSentinel(t *testing.T) {
	t.Parallel()
	o := redistest.StartSentinel(t, redistest.SentinelOptions{}).FailoverOptions()
	passOne(t, "redis-sentinel://"+strings.Join(o.SentinelAddrs, ",")+"/"+url.PathEscape(o.MasterName)+"/1")
}
