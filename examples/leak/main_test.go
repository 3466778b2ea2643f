package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The profile has the function that leaks timers, the one that holds some correctly, and no other.
func TestProfileFindsTheLeak(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "timers.pb.gz")
	var out bytes.Buffer
	require.NoError(t, run(file, &out))
	require.Regexp(t, `^500 sessions are open and no request is in flight, but \d{5} timers are pending\n`, out.String())

	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	p, err := profile.Parse(f)
	require.NoError(t, err)
	holders := map[string]int64{}
	for _, s := range p.Sample {
		name := s.Location[0].Line[0].Function.Name
		holders[name[strings.LastIndexByte(name, '.')+1:]] += s.Value[0]
	}
	require.Len(t, holders, 2)
	assert.InEpsilon(t, sessions, holders["openSession"], 0.9) // 31 samples
	assert.InEpsilon(t, 14_000, holders["cached"], 0.4)        // 900 samples
}
