package redisstore_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// longestScript is how long a script may take on an overloaded machine. On other machines a script
// takes a few milliseconds. A script that goes through the whole partition would take longer.
const longestScript = 250 * time.Millisecond

// scriptTimes collects the durations of scripts from a server.
type scriptTimes struct {
	t      *testing.T
	client *redis.Client
	taken  map[string][]time.Duration
}

var evalshaTime = regexp.MustCompile(`cmdstat_evalsha:calls=[12],usec=(\d+)`)

// of makes one transition, and records the duration of its script.
func (s *scriptTimes) of(name string, transition func()) {
	s.t.Helper()
	require.NoError(s.t, s.client.ConfigResetStat(s.t.Context()).Err())
	transition()
	info, err := s.client.Info(s.t.Context(), "commandstats").Result()
	require.NoError(s.t, err)
	found := evalshaTime.FindStringSubmatch(info)
	require.NotNil(s.t, found, "%s ran no script", name)
	usec, err := strconv.Atoi(found[1])
	require.NoError(s.t, err)
	s.taken[name] = append(s.taken[name], time.Duration(usec)*time.Microsecond)
}

// Each transition is made with full batches in a large partition.
func TestFullBatchesAreFastInALargePartition(t *testing.T) {
	t.Parallel()
	client := newClient(t, redistest.Start(t, redistest.Options{}).Addr())
	q := openQueue(t, client, redisstore.Options{})
	for i := range 50 {
		put(t, q, items(fmt.Sprintf("later%03d", i), driver.MaxBatch, 128, time.Hour))
	}
	s := &scriptTimes{t: t, client: client, taken: make(map[string][]time.Duration)}
	for i := range 7 {
		s.cycle(q, items(fmt.Sprintf("now%05d", i), driver.MaxBatch, 128, 0), i > 0)
	}
	for name, taken := range s.taken {
		slices.Sort(taken)
		t.Logf("%-10s %d messages: fastest %v, slowest %v", name, driver.MaxBatch, taken[0], taken[len(taken)-1])
		assert.Less(t, taken[0], longestScript, name)
	}
}

// cycle takes a batch through all transitions. The server must know each script before it is
// measured.
func (s *scriptTimes) cycle(q driver.Backend, batch []driver.PutItem, measured bool) {
	of := func(name string, transition func()) {
		if measured {
			s.of(name, transition)
		} else {
			transition()
		}
	}
	ids := make([]driver.Change, len(batch))
	for i, m := range batch {
		ids[i] = driver.Change{ID: m.ID}
	}
	var held []driver.Change
	claimAll := func() { held = changes(claim(s.t, q, driver.MaxBatch)) }
	do := func(op driver.Op) func() { return func() { apply(s.t, q, op, held...) } }
	anyone := func(op driver.Op) func() { return func() { apply(s.t, q, op, ids...) } }

	of("put", func() { put(s.t, q, batch) })
	of("claim", claimAll)
	of("release", do(driver.OpRelease))
	of("claim again", claimAll)
	of("begin", do(driver.OpBegin))
	of("extend", do(driver.OpExtend))
	of("retry", do(driver.OpRetry))
	claimAll()
	do(driver.OpBegin)()
	of("bury", do(driver.OpBury))
	of("replay", anyone(driver.OpReplay))
	of("reschedule", anyone(driver.OpReschedule))
	claimAll()
	do(driver.OpBegin)()
	of("ack", do(driver.OpAck))
	put(s.t, q, batch)
	of("cancel", anyone(driver.OpCancel))
	put(s.t, q, batch)
	_, err := q.Claim(s.t.Context(), driver.Claim{Max: driver.MaxBatch, MaxBytes: 1 << 28, Horizon: time.Second})
	require.NoError(s.t, err)
	time.Sleep(10 * time.Millisecond) // the leases end
	of("expire", func() { s.expire(q) })
	anyone(driver.OpCancel)()
}

func (s *scriptTimes) expire(q driver.Backend) {
	s.t.Helper()
	_, err := q.Claim(s.t.Context(), driver.Claim{})
	require.NoError(s.t, err)
	counts, err := q.Count(s.t.Context(), 0)
	require.NoError(s.t, err)
	require.Zero(s.t, counts.InFlight)
}
