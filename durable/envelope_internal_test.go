package durable

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Decoding an envelope returns what was encoded. The overhead is one byte if there is only a body.
func TestEnvelopeIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		content
		want string
	}{
		"empty":   {content{}, "\x10"},
		"body":    {content{body: []byte("body")}, "\x10body"},
		"expiry":  {content{expire: 300, body: []byte("b")}, "\x11\xac\x02b"},
		"headers": {content{headers: map[string]string{"b": "", "a": "xyz"}, body: []byte("b")}, "\x12\x02\x01a\x03xyz\x01b\x00b"},
		"all":     {content{headers: map[string]string{"語": "ß"}, expire: driver.Never, body: []byte{0, 255}}, "\x13\x80\x80\x80\x80\x80\x80\x80\x08\x01\x03語\x02ß\x00\xff"},
	} {
		b := c.encode()
		assert.Equal(t, c.want, string(b), name)
		got, err := decodeEnvelope(b)
		require.NoError(t, err, name)
		assert.Equal(t, c.headers, got.headers, name)
		assert.Equal(t, c.expire, got.expire, name)
		assert.True(t, bytes.Equal(c.body, got.body), name)
	}
}

// Decoding an envelope of another version, or a damaged one, returns ErrVersion.
func TestUnreadableEnvelopeIsErrVersion(t *testing.T) {
	t.Parallel()
	whole := (&content{headers: map[string]string{"key": "value"}, expire: 1 << 40}).encode()
	for n := range whole {
		_, err := decodeEnvelope(whole[:n])
		require.ErrorIs(t, err, ErrVersion, "%d of %d bytes", n, len(whole))
	}
	for _, bad := range []string{
		"\x00", "\x20body", "\x14body", "\xff", "body",
		"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",     // 2^64-1 headers
		"\x12\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a key of 2^64-1 bytes
		"\x11\x81\x80\x80\x80\x80\x80\x80\x08",             // an instant after driver.Never
	} {
		_, err := decodeEnvelope([]byte(bad))
		require.ErrorIs(t, err, ErrVersion, "%q", bad)
	}
}

// The last instant before the expiry is the millisecond of ExpireAt.
func TestExpiryIsRoundedDown(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_000)
	for late, want := range map[time.Duration]driver.Instant{0: 1000, 1: 1000, time.Millisecond - 1: 1000, time.Millisecond: 1001, -1: 999} {
		assert.Equal(t, want, expiryOf(at.Add(late)), late)
	}
	assert.EqualValues(t, 1, expiryOf(time.UnixMilli(-5)), "0 means none")
	assert.Equal(t, driver.Never, expiryOf(driver.Never.Time().Add(time.Hour)))
	c := content{expire: 1000}
	assert.False(t, c.expired(at))
	assert.False(t, c.expired(at.Add(time.Millisecond-1)), "the millisecond has not passed")
	assert.True(t, c.expired(at.Add(time.Millisecond)))
	assert.False(t, (&content{}).expired(at), "no expiry")
}

// FuzzEnvelope decodes arbitrary bytes. The result is an error, or a content that does not change
// when it is encoded and decoded again.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("\x10body"))
	f.Add([]byte("\x20body"))
	f.Add((&content{headers: map[string]string{"traceparent": strings.Repeat("0", 55), "b": ""}, expire: 1 << 41, body: []byte("body")}).encode())
	f.Add([]byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeEnvelope(b)
		if err != nil {
			require.ErrorIs(t, err, ErrVersion)
			require.Zero(t, c)
			return
		}
		again, err := decodeEnvelope(c.encode())
		require.NoError(t, err)
		require.Equal(t, c.expire, again.expire)
		require.Equal(t, len(c.headers), len(again.headers))
		for key, value := range c.headers {
			require.Equal(t, value, again.headers[key])
		}
		require.True(t, bytes.Equal(c.body, again.body))
	})
}
