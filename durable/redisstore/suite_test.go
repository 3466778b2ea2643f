package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/storetest"
)

func TestSuiteOnSimulatedServer(t *testing.T) {
	t.Parallel()
	storetest.Run(t, miniFixture)
}

func TestSuiteOnServer(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	storetest.Run(t, func(t testing.TB) storetest.Fixture { return fixtureOn(t, client) })
}

// The client uses RESP2, in which some replies have another form.
func TestSuiteOnOlderProtocol(t *testing.T) {
	t.Parallel()
	o := redistest.ClientOptions(redistest.Start(t, redistest.Options{}).Addr())
	o.Protocol = 2
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	storetest.Run(t, func(t testing.TB) storetest.Fixture { return fixtureOn(t, client) })
}

func TestSuiteOnCluster(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t, redistest.ClusterOptions{}).Client(t)
	storetest.Run(t, func(t testing.TB) storetest.Fixture { return fixtureOn(t, client) })
}
