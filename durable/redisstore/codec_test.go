package redisstore

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

func TestScriptsDocumentKeysArgumentsAndResults(t *testing.T) {
	t.Parallel()
	files, err := luaFiles.ReadDir("lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := luaFiles.ReadFile("lua/" + f.Name())
		require.NoError(t, err)
		header, _, _ := strings.Cut(string(text), "\n\n")
		assert.True(t, strings.HasPrefix(header, "-- "), f.Name())
		assert.Contains(t, header, "KEYS", f.Name())
		assert.Contains(t, header, "ARGV", f.Name())
	}
	for op, s := range opScripts {
		assert.Equal(t, op >= int(driver.OpBegin), s != nil, "transition %d", op)
	}
}

func TestKeysOfAPartitionShareTheirHashTag(t *testing.T) {
	t.Parallel()
	p := newPartition("my:app", "orders", 3)
	assert.Equal(t, "my:app:{orders:3}:m", p.keys[0])
	assert.Equal(t, "my:app:{orders:3}:d", p.keys[keyScheduled-1])
	seen := make(map[string]bool)
	for _, k := range append(p.keys, p.channel) {
		key, _ := k.(string)
		assert.True(t, strings.HasPrefix(key, "my:app:{orders:3}:"), key)
		assert.False(t, seen[key], key)
		seen[key] = true
	}
}

func TestArgumentsOfScriptsSaturate(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "0", timeArg(0, 0))
	assert.Equal(t, "0", timeArg(0, math.MinInt64))
	assert.Equal(t, "-1", timeArg(0, 1))
	assert.Equal(t, "-2", timeArg(-5, 2*time.Millisecond), "a negative instant is none")
	assert.Equal(t, "7", timeArg(7, time.Hour))
	assert.Equal(t, "4503599627370496", timeArg(math.MaxInt64, 0))
	assert.Equal(t, int64(9223372036855), millis(math.MaxInt64))
	assert.Equal(t, "\x00\x00\x00\x00\x00\x01\x02", string(packToken(0x102)))
	assert.Equal(t, uint64(1)<<53, unpack(string(packToken(1<<53))))
	for _, token := range []uint64{1 << 56, 1<<56 + 5, math.MaxUint64} {
		assert.Equal(t, strings.Repeat("\xff", width), string(packToken(token)), "no token of any message")
	}
}

func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "short", contract.CutReason("short"))
	assert.Len(t, contract.CutReason(strings.Repeat("x", 5000)), contract.MaxReason)
	for _, s := range []string{
		strings.Repeat("é", 400), "x" + strings.Repeat("é", 400), strings.Repeat("😀", 200), "xyz" + strings.Repeat("😀", 200),
	} {
		cut := contract.CutReason(s)
		assert.True(t, utf8.ValidString(cut))
		assert.Greater(t, len(cut), contract.MaxReason-utf8.UTFMax)
		assert.LessOrEqual(t, len(cut), contract.MaxReason)
	}
	broken := strings.Repeat("\x80", 5000)
	assert.NotEmpty(t, contract.CutReason(broken), "invalid UTF-8 is cut as well")
}

func TestDamagedRecordReturnsErrVersion(t *testing.T) {
	t.Parallel()
	whole := "\x01" + strings.Repeat("\x00", recordHeader-1)
	_, err := decodeRecord("a", whole, "")
	require.NoError(t, err)
	for _, record := range []string{"", "\x01", whole[:recordHeader-1], "\x02" + whole[1:]} {
		_, err := decodeRecord("a", record, "")
		require.ErrorIs(t, err, driver.ErrVersion, "%q", record)
		assert.Contains(t, err.Error(), `"a"`)
	}
	for _, state := range []string{"S", strings.Repeat("\x00", stateHeader-1) + "\x01"} {
		_, err = decodeRecord("a", whole, state)
		require.ErrorIs(t, err, driver.ErrVersion, "%q", state)
	}
}

func TestReplyOfAnotherFormIsRejected(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{
		"nothing": nil, "no list": "x", "empty": []any{}, "short": []any{"1", "2", "0"}, "no number": []any{"x", "2", "0", "0", ""},
		"a list": []any{[]any{}, "2", "0", "0", ""}, "no leases": []any{"1", "2", "0", "0", "", "0", "0", "a", "b", "c"},
	} {
		r := newReply(v)
		readClaimed(r)
		require.ErrorIs(t, r.err, errReply, name)
		assert.False(t, errors.Is(failure(t.Context(), "claim", r.err), driver.ErrUnavailable), "a retry does not help")
	}
	for name, v := range map[string]any{
		"no statuses": []any{"1", "2", "", "", ""}, "too many": []any{"1", "2", "111", "", ""}, "due": []any{"1", "2", "11", "1234567", ""},
	} {
		r := newReply(v)
		readOutcomes(r, 2)
		require.ErrorIs(t, r.err, errReply, name)
	}
}
