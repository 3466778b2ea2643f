package debug

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrefersJSON(t *testing.T) {
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
		assert.Equal(t, want, prefersJSON([]string{accept}), accept)
		w := request(&Handler{}, http.MethodGet, "/", "Accept", accept)
		if want {
			assert.Equal(t, "application/json", w.Header().Get("Content-Type"), accept)
		} else {
			assert.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"), accept)
		}
		page := request(&Handler{}, http.MethodGet, "/?format=html", "Accept", accept)
		assert.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"), accept)
	}
	assert.True(t, prefersJSON([]string{"text/plain", "application/json"}), "two headers")
}
