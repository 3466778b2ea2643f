package webpage

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrefersJSONByAcceptHeader(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                                  false,
		"*/*":                               false, // curl
		"application/json":                  true,
		"Application/JSON; charset=utf-8":   true,
		"application/json, text/plain, */*": true,
		"application/*":                     true,
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8": false, // browsers
		"text/html, application/json":           false,
		"text/html;q=0.5, application/json":     true,
		"text/*, application/json":              true,
		"application/json;q=0":                  false,
		"application/json;q=2, text/html;q=0.1": false,
		"application/json;q=nan":                false,
		"nonsense;;=":                           false,
	} {
		assert.Equal(t, want, PrefersJSON([]string{accept}), accept)
	}
	assert.True(t, PrefersJSON([]string{"text/plain", "application/json"}), "two headers")
}
