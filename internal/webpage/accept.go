package webpage

import (
	"mime"
	"strconv"
	"strings"
)

// PrefersJSON reports whether the Accept headers ask for application/json rather than for
// text/html. Of two with the same quality the one that is named more exactly counts; without a
// header it is the page.
func PrefersJSON(accept []string) bool {
	jsonQuality, jsonExact := quality(accept, "application/json")
	htmlQuality, htmlExact := quality(accept, "text/html")
	if jsonQuality != htmlQuality {
		return jsonQuality > htmlQuality
	}
	return jsonQuality > 0 && jsonExact > htmlExact
}

// quality is what the Accept headers say of a media type: that of the most exact range that holds
// it, and how exact that is: 3 for the type itself, 2 for its kind, 1 for everything, 0 for
// nothing.
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

// weight is a q parameter; 1 where there is none.
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
