package storeurl

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
)

// FuzzRedact puts a password into mistyped URLs, and checks that no error contains the password.
func FuzzRedact(f *testing.F) {
	f.Add("redis://user:", "", "host:1")
	f.Add("redis-cluster://:", "/x", "a:1,b:2?dial_timeout=no")
	f.Add("rediss-sentinel://u:", "@", "a:1/m/x?password=hush")
	f.Add("unix://", "%zz", "[::1]:6379/1#x")
	f.Add("postgres://u:", "", "a:1,b/db?sslmode=no")
	f.Fuzz(checkRedacted)
}

// TestRandomURLsHidePasswords is FuzzRedact without its instrumented build of Pebble, which takes
// longer than CI has for it.
func TestRandomURLsHidePasswords(t *testing.T) {
	t.Parallel()
	schemes := []string{"redis", "rediss", "redis-cluster", "redis-sentinel", "postgres", "postgresql", "unix", "memory", "x", ""}
	pieces := []string{":", "/", "@", "?", "#", "%", "%zz", "%40", "[", "]", ",", "&", "=", ".", " ", "\\", "\x00", "a", "1", "host:1", "db=1", "dial_timeout=no", "sslmode=no", "password=", "\u00e9"}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	some := func(most int) string {
		var s strings.Builder
		for range random.IntN(most + 1) {
			s.WriteString(pieces[random.IntN(len(pieces))])
		}
		return s.String()
	}
	for range 5000 {
		before := schemes[random.IntN(len(schemes))] + "://" + some(2) + ":"
		after, rest := some(2), some(6)
		t.Run("", func(t *testing.T) { checkRedacted(t, before, after, rest) })
	}
}

// checkRedacted puts a password between before and after, and checks that no error contains it.
func checkRedacted(t *testing.T, before, after, rest string) {
	const password = "hush+hush"
	if strings.Contains(before+after+"@"+rest, password) || !strings.HasSuffix(before, ":") || strings.HasPrefix(strings.ToLower(before), "dir:") {
		t.Skip("the URL has no password")
	}
	url := before + password + after + "@" + rest
	assert.NotContains(t, Redact(url), password)
	_, err := Parse(url)
	if err == nil {
		return
	}
	require.ErrorIs(t, err, durable.ErrInvalid)
	assert.NotContains(t, err.Error(), password, "%q", url)
}
