//go:build unix

package chaos

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process with a queue in a directory is killed many times while it enqueues, delivers, cancels
// and commits. The directory always opens, no acknowledged message is lost, and no cancelled
// message runs.
func TestKilledProcessWithADirectoryLosesNothing(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	r := newRun(t, target{Dir: filepath.Join(t.TempDir(), "queue")})
	both := role{
		Consume: true, Visibility: time.Second, Handle: time.Millisecond,
		Messages: 100_000, Batch: 10, MaxDelay: 300 * time.Millisecond, Pace: time.Millisecond, CancelEvery: 4, Series: 2,
	}
	for i := range scaled(12, 200) {
		c := r.start(both)
		c.waitUntilOpen()
		require.False(t, c.ended(), "the process has ended by itself: %s", &c.errs)
		if i%3 == 0 { // every third process makes progress; on a busy machine the others may be killed before they do anything
			require.Eventually(t, func() bool { info, err := os.Stat(c.role.Events); return err == nil && info.Size() > 8000 }, waitLimit, 5*time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		c.kill()
	}
	r.start(role{Consume: true, Visibility: time.Second, UntilEmpty: true}).wait()
	r.waitUntilDrained()
	report := r.check(Options{Crashes: true}, nil)
	assert.Greater(t, report.Enqueued, 100)
	assert.Positive(t, report.Handled)
	assert.Positive(t, report.Cancelled)
	assert.Zero(t, report.Dead)
	assert.Positive(t, report.Runs)
}
