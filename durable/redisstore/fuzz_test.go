package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// FuzzRecord decodes damaged records and states.
func FuzzRecord(f *testing.F) {
	record := "\x01" + strings.Repeat("\x00", recordHeader-1)
	f.Add(record, "")
	f.Add(record+"body", "L"+strings.Repeat("\x01", stateHeader-1))
	f.Add(record, "X"+strings.Repeat("\x00", stateHeader-1)+"reason")
	f.Add(record, "F"+strings.Repeat("\x00", stateHeader-2)+"\x0e\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x01keyreason")
	f.Add(record, "F"+strings.Repeat("\x00", stateHeader-2)+"\x0e\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01dayprocess") // marked
	f.Add("\x02", "?")
	f.Fuzz(func(t *testing.T, record, state string) {
		r, err := decodeRecord("id", record, state)
		assert.Equal(t, "id", r.ID)
		if err != nil {
			require.ErrorIs(t, err, driver.ErrVersion)
			assert.ErrorContains(t, err, `"id"`)
			return
		}
		for _, i := range []driver.Instant{r.Enqueued, r.Due, r.Died, r.Planned} {
			assert.True(t, i >= 0 && i <= driver.Never, "%d", i)
		}
		assert.GreaterOrEqual(t, min(r.MaxAttempts, r.Attempts, r.Crashes, r.Postponed), 0)
		assert.Equal(t, record[recordHeader:], string(r.Body))
	})
}

// FuzzReplies decodes replies that no script returns. A reply is rejected or read as a whole.
func FuzzReplies(f *testing.F) {
	record := "\x01" + strings.Repeat("\x00", recordHeader-1)
	f.Add("1\n2\n0\n0\n\n0\n0", 0)
	f.Add("1\n2\n3\n4\n1234567\n0\n1\nid\n"+record+"\n", 1)
	f.Add("1\n2\n3\n4\n12345678\n0\n0\nid\n"+record+"\n", 1)
	f.Add("1\n2\n01\n12345671234567\n", 2)
	f.Add("lost", 0)
	f.Add("late\n5\n1", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		var values []any
		for part := range strings.SplitSeq(text, "\n") {
			values = append(values, part)
		}
		r := newReply(values)
		late := new(driver.LateError)
		if readClaimed(r); r.err == nil {
			assert.Empty(t, r.values, "all of it was read")
		} else if !errors.As(r.err, &late) {
			assert.True(t, errors.Is(r.err, errReply) || errors.Is(r.err, driver.ErrVersion), "%v", r.err)
		}
		n = max(0, min(n, driver.MaxBatch))
		r = newReply(values)
		outcomes := readOutcomes(r, n)
		if r.err != nil {
			assert.True(t, errors.As(r.err, &late) || errors.Is(r.err, errReply), "%v", r.err)
			return
		}
		assert.Len(t, outcomes, n)
	})
}
