package durable

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/internal/contract"
)

// A store keeps an envelope as the body of a message and does not interpret it:
//
//	1 byte   version in the upper four bits, and below them flags: has an expiry, has headers
//	uvarint  the expiry in milliseconds since 1970, if the flag is set
//	uvarint  the number of headers, if the flag is set; then for each, in the order of the keys:
//	         uvarint length and bytes of the key, uvarint length and bytes of the value
//	         the body, up to the end
//
// The overhead of a message without headers and expiry is one byte.
const (
	envelopeVersion = 1

	envelopeExpiry  = 1 << 0
	envelopeHeaders = 1 << 1
)

// content is the decoded envelope of a message.
type content struct {
	headers map[string]string // nil if there are none
	expire  driver.Instant    // the last instant at which the message may begin; 0: none
	body    []byte
}

// expired reports whether the store's clock is past the expiry.
func (c *content) expired(now time.Time) bool {
	return c.expire != 0 && now.UnixMilli() > int64(c.expire)
}

// encode returns the envelope. It copies the body.
func (c *content) encode() []byte {
	flags, size := byte(0), 1+len(c.body)
	if c.expire != 0 {
		flags |= envelopeExpiry
		size += binary.MaxVarintLen64
	}
	if len(c.headers) > 0 {
		flags |= envelopeHeaders
		size += 2 + 4*len(c.headers) + headerBytes(c.headers)
	}
	b := append(make([]byte, 0, size), envelopeVersion<<4|flags)
	if c.expire != 0 {
		b = binary.AppendUvarint(b, uint64(c.expire))
	}
	if len(c.headers) > 0 {
		b = binary.AppendUvarint(b, uint64(len(c.headers)))
		for _, key := range slices.Sorted(maps.Keys(c.headers)) {
			for _, text := range []string{key, c.headers[key]} {
				b = binary.AppendUvarint(b, uint64(len(text)))
				b = append(b, text...)
			}
		}
	}
	return append(b, c.body...)
}

// decodeEnvelope decodes an envelope. The returned body is a subslice of b. It returns [ErrVersion]
// if the envelope has another version or is damaged.
func decodeEnvelope(b []byte) (c content, err error) {
	if len(b) == 0 {
		return c, fmt.Errorf("%w: the content is empty", ErrVersion)
	}
	version, flags := b[0]>>4, b[0]&0xf
	if version != envelopeVersion || flags&^(envelopeExpiry|envelopeHeaders) != 0 {
		return c, fmt.Errorf("%w: the content has version %d and flags %d; it must be version %d with flags up to %d",
			ErrVersion, version, flags, envelopeVersion, envelopeExpiry|envelopeHeaders)
	}
	r := envelopeReader{rest: b[1:]}
	if flags&envelopeExpiry != 0 {
		c.expire = driver.Instant(r.number(uint64(driver.Never)))
	}
	if flags&envelopeHeaders != 0 {
		n := r.number(uint64(len(r.rest)))
		c.headers = make(map[string]string, min(n, contract.MaxHeaders))
		for i := uint64(0); i < n && !r.damaged; i++ {
			key := r.text()
			c.headers[key] = r.text()
		}
	}
	if r.damaged {
		return content{}, fmt.Errorf("%w: the beginning of the content (%d bytes) is damaged",
			ErrVersion, len(b))
	}
	c.body = r.rest
	return c, nil
}

// envelopeReader reads numbers and strings, up to the first damaged one.
type envelopeReader struct {
	rest    []byte
	damaged bool
}

// number reads a number that is at most limit.
func (r *envelopeReader) number(limit uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > limit {
		r.damaged, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *envelopeReader) text() string {
	n := r.number(math.MaxUint64)
	if n > uint64(len(r.rest)) {
		r.damaged, r.rest = true, nil
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}

func headerBytes(headers map[string]string) int {
	n := 0
	for key, value := range headers {
		n += len(key) + len(value)
	}
	return n
}

// checkHeaders returns [ErrInvalid] if a message cannot have these headers.
func checkHeaders(id string, headers map[string]string) error {
	if len(headers) > contract.MaxHeaders {
		return fmt.Errorf("%w headers of message %q: %d headers; there must be at most %d",
			ErrInvalid, id, len(headers), contract.MaxHeaders)
	}
	if n := headerBytes(headers); n > contract.MaxHeaderBytes {
		return fmt.Errorf("%w headers of message %q: %d bytes in keys and values; there must be at most %d",
			ErrInvalid, id, n, contract.MaxHeaderBytes)
	}
	for key, value := range headers {
		switch {
		case key == "":
			return fmt.Errorf("%w headers of message %q: empty key; each key must have at least 1 byte",
				ErrInvalid, id)
		case !utf8.ValidString(key):
			return fmt.Errorf("%w headers of message %q: key %.40q; it must be UTF-8",
				ErrInvalid, id, key)
		case !utf8.ValidString(value):
			return fmt.Errorf("%w headers of message %q: value %.40q of key %.40q; the value must be UTF-8",
				ErrInvalid, id, value, key)
		}
	}
	return nil
}

// newContent validates the parts of a message that its envelope holds. due is the instant of
// Message.At, or 0.
func newContent(m *Message, due driver.Instant, maxBody int) (content, error) {
	c := content{headers: m.Headers, body: m.Body}
	if len(m.Body) > maxBody {
		return c, fmt.Errorf("%w body of message %q: %d bytes; there must be at most %d (Options.MaxBody)",
			ErrInvalid, m.ID, len(m.Body), maxBody)
	}
	if err := checkHeaders(m.ID, m.Headers); err != nil || m.ExpireAt.IsZero() {
		return c, err
	}
	c.expire = expiryOf(m.ExpireAt)
	if at := m.At; due >= c.expire {
		if at.IsZero() {
			at = due.Time() // of a series
		}
		return c, fmt.Errorf("%w message %q: ExpireAt (%v) is not after At (%v), in whole milliseconds, so the message could never be delivered",
			ErrInvalid, m.ID, m.ExpireAt, at)
	}
	return c, nil
}

// expiryOf returns the last instant that is not after t, and at least 1, because 0 means none.
func expiryOf(t time.Time) driver.Instant {
	i := driver.InstantOf(t)
	if i > 0 && i < driver.Never && i.Time().After(t) {
		i--
	}
	return max(1, i)
}
