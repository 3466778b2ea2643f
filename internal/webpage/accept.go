package webpage

import (
	"mime"
	"strconv"
	"strings"
)

// PrefersJSON reports whether the Accept headers ask for application/json rather than for
// text/html. If both have the same quality, the more exact range wins. Without a header it returns
// false.
func PrefersJSON(accept []string) bool {
	jsonQuality, jsonExact := quality(accept, "application/json")
	htmlQuality, htmlExact := quality(accept, "text/html")
	if jsonQuality != htmlQuality {
		return jsonQuality > htmlQuality
	}
	return jsonQuality > 0 && jsonExact > htmlExact
}

// quality returns the quality of a media type in the Accept headers. It is that of the most exact
// range that matches the type. exact is 3 for the type itself, 2 for its kind, 1 for everything and
// 0 if no range matches.
func quality(accept []string, media string) (q float64, exact int) {
	kind, _, _ := strings.Cut(media, "/")
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			name, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			level := 0
			switch name {
			case media:
				level = 3
			case kind + "/*":
				level = 2
			case "*/*":
				level = 1
			}
			if level > exact {
				q, exact = weight(params["q"]), level
			}
		}
	}
	return q, exact
}

// weight returns the value of a q parameter: 1 if it is empty, and 0 if it is not valid.
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
