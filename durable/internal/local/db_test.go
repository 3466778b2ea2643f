package local

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Map holds what a Go map holds after the same random changes, in the order of the keys.
func TestMapAgreesWithGoMap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	l, model := new(Map), make(map[string]string)
	for range 20_000 {
		key := strconv.Itoa(random.IntN(300))
		value := strconv.Itoa(random.IntN(1000))
		switch random.IntN(3) {
		case 0:
			l.Delete([]byte(key))
			delete(model, key)
		default:
			l.Set([]byte(key), []byte(value))
			model[key] = value
		}
		got, err := l.Get([]byte(key))
		require.NoError(t, err)
		require.Equal(t, model[key], string(got))
		from, to := strconv.Itoa(random.IntN(300)), strconv.Itoa(random.IntN(300))
		if random.IntN(100) == 0 {
			require.Equal(t, keysOf(model, from, to), scan(t, l, from, to))
		}
		if random.IntN(50) == 0 {
			l.DeleteRange([]byte(from), []byte(to))
			for _, key := range keysOf(model, from, to) {
				delete(model, key)
			}
		}
	}
	require.Equal(t, keysOf(model, "", "x"), scan(t, l, "", "x"))
}

func keysOf(model map[string]string, from, to string) []string {
	var keys []string
	for k := range model {
		if from <= k && k < to {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func scan(t *testing.T, l *Map, from, to string) []string {
	t.Helper()
	var keys []string
	require.NoError(t, l.Scan([]byte(from), []byte(to), func(k, _ []byte) bool {
		keys = append(keys, string(k))
		return true
	}))
	return keys
}

// A visit may delete the key that it visits, and the scan goes on.
func TestScanContinuesAfterVisitDeletesItsKey(t *testing.T) {
	t.Parallel()
	l := new(Map)
	for i := range 100 {
		l.Set([]byte{byte(i)}, nil)
	}
	n := 0
	require.NoError(t, l.Scan([]byte{10}, []byte{90}, func(k, _ []byte) bool {
		n++
		l.Delete(bytes.Clone(k))
		return true
	}))
	assert.Equal(t, 80, n)
	assert.Len(t, scan(t, l, "", "\xff"), 20)
}

// A counter that returns to zero leaves no key.
func TestAddSumsUpAndDropsZero(t *testing.T) {
	t.Parallel()
	l := new(Map)
	l.Add([]byte("n"), 3)
	l.Add([]byte("n"), -300)
	value, err := l.Get([]byte("n"))
	require.NoError(t, err)
	assert.EqualValues(t, -297, Number(value))
	l.Add([]byte("n"), 297)
	assert.Empty(t, scan(t, l, "", "x"))
}
