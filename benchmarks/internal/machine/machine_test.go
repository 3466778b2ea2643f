package machine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDescribe(t *testing.T) {
	got := Describe("Some CPU")
	assert.Regexp(t, `^Some CPU, \d+ cores, \w+/\w+, \S.*, (commit \w+|unknown commit)`, got)
	assert.Contains(t, Describe(""), "unknown processor")
}
