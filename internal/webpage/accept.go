package webpage

import (
	"mime"
	"strconv"
	"strings"
)

// PrefersJSON reports whether the Accept headers prefer application/json to text/html. If both have
// the same quality, the more specific range wins. Without a header PrefersJSON returns false.
func PrefersJSON(accept []string) bool {
	jsonQuality, jsonExact := quality(accept, "application/json")
	htmlQuality, htmlExact := quality(accept, "text/html")
	if jsonQuality != htmlQuality {
		return jsonQuality > htmlQuality
	}
	return jsonQuality > 0 && jsonExact > htmlExact
}

// quality returns the quality of a media type in the Accept headers, as the most specific range
// that matches gives it. exact is 3 for type/subtype, 2 for type/*, 1 for */* and 0 if no range
// matches.
func quality(accept []string, media string) (q float64, exact int) {
	kind, _, _ := strings.Cut(media, "/")
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			name, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			level := map[string]int{media: 3, kind + "/*": 2, "*/*": 1}[name]
			if level > exact {
				q, exact = weight(params["q"]), level
			}
		}
	}
	return q, exact
}

// weight returns the value of a q parameter: 1 if q is empty, and 0 if q is not valid.
func weight(q string) float64 {
	if q == "" {
		return 1
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return 0
	}
	return v
}
