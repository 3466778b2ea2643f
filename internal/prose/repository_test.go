package prose

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRepositoryFollowsTheRulesOfProse(t *testing.T) {
	t.Parallel()
	findings, err := Check(root)
	require.NoError(t, err)
	accepted, err := Exceptions("exceptions.txt")
	require.NoError(t, err)
	used := map[Finding]bool{}
	for _, f := range findings {
		key := Finding{Path: f.Path, Rule: f.Rule, Text: f.Text}
		if _, ok := accepted[key]; ok {
			used[key] = true
			continue
		}
		t.Error(f)
	}
	for key := range accepted {
		assert.True(t, used[key], "exceptions.txt lists a finding that no longer exists: %v", key)
	}
}
