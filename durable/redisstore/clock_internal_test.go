package redisstore

import (
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// narrow makes %d behave as on a 32-bit server.
const narrow = `local string = (function(s)
  return { format = function(f, n)
    if f == '%d' then n = math.max(-2147483648, math.min(2147483647, n)) end
    return s.format(f, n)
  end }
end)(string)
`

// Instants are formatted with a %d of 32 bits.
func TestInstantsAreExactOnAServerOf32Bits(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { assert.NoError(t, client.Close()) }()
	clock, err := luaFiles.ReadFile("lua/clock.lua")
	require.NoError(t, err)
	for _, shim := range []string{"", narrow} {
		v, err := client.Eval(t.Context(), shim+string(clock)+"\nreturn { decimal(NEVER), decimal(-NEVER), decimal(0) }", []string{"k"}).StringSlice()
		require.NoError(t, err)
		never := strconv.FormatInt(int64(driver.Never), 10)
		assert.Equal(t, []string{never, "-" + never, "0"}, v)
	}
}
