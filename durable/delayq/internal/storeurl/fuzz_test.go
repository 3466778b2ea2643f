package storeurl

import (
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
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		const password = "hush+hush"
		if strings.Contains(before+after+"@"+rest, password) || !strings.HasSuffix(before, ":") || strings.HasPrefix(strings.ToLower(before), "dir:") {
			t.Skip("the URL has no password")
		}
		url := before + password + after + "@" + rest
		assert.NotContains(t, Redact(url), password)
		client, err := newClient(url)
		if err == nil {
			require.NoError(t, client.Close())
			return
		}
		require.ErrorIs(t, err, durable.ErrInvalid)
		assert.NotContains(t, err.Error(), password, "%q", url)
	})
}
