package nilcheck

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsNil(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    any
		want bool
	}{
		"nil":         {nil, true},
		"nil pointer": {(*int)(nil), true},
		"pointer":     {new(int), false},
		"value":       {struct{}{}, false},
		"nil slice":   {[]int(nil), false}, // its methods may work
	} {
		assert.Equal(t, c.want, IsNil(c.s), name)
	}
}
