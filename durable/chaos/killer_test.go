//go:build unix

package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest"
)

// killerCrashes is the number of crashes after which the killer is a dead letter.
const killerCrashes = 4

// handleKiller handles a message of TestKillerDiesAlone.
func (r *role) handleKiller(_ context.Context, d *durable.Delivery) error {
	if d.ID == "killer" {
		os.Exit(4)
	}
	n, err := strconv.Atoi(d.ID)
	time.Sleep(time.Duration(n) * r.Handle)
	return err
}

// A process has 64 handlers, and one message ends it immediately. It alone becomes a dead letter,
// with the process that it ended last, although the other 63 were running each time at first.
func TestKillerDiesAlone(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for name, tg := range map[string]target{
		"directory": {Dir: filepath.Join(t.TempDir(), "queue")},
		"redis":     {Redis: redistest.Start(t, redistest.Options{}).Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, tg)
			inspect := func(do func(q *durable.Queue)) {
				q, store, err := (&role{Target: tg}).target(t.Context())
				require.NoError(t, err)
				do(q)
				q.Close()
				require.NoError(t, store.Close())
			}
			const neighbours = 63
			inspect(func(q *durable.Queue) {
				messages := []durable.Message{{ID: "killer"}}
				for i := range neighbours {
					messages = append(messages, durable.Message{ID: fmt.Sprint(i)})
				}
				_, err := q.EnqueueBatch(t.Context(), messages)
				require.NoError(t, err)
			})
			last := 0
			for life := 0; ; life++ {
				require.Less(t, life, 4*killerCrashes, "the killer lives")
				c := r.start(role{Consume: true, Killer: true, Handle: 5 * time.Millisecond, Visibility: time.Second, UntilEmpty: true})
				require.Eventually(t, c.ended, waitLimit, time.Millisecond)
				if c.cmd.ProcessState.Success() {
					t.Logf("%d lives", life)
					break
				}
				require.Equal(t, 4, c.cmd.ProcessState.ExitCode())
				last = c.cmd.Process.Pid
			}
			host, err := os.Hostname()
			require.NoError(t, err)
			inspect(func(q *durable.Queue) {
				var dead []string
				for d, err := range q.List(t.Context(), durable.StateDead) {
					require.NoError(t, err)
					dead = append(dead, d.ID+": "+d.Reason)
				}
				assert.Equal(t, []string{fmt.Sprintf("killer: the consumer process ended or hung %d times during delivery, last pid %d on host %s",
					killerCrashes, last, host)}, dead)
				s, err := q.Stats(t.Context())
				require.NoError(t, err)
				assert.EqualValues(t, neighbours, s.Acked)
			})
		})
	}
}
