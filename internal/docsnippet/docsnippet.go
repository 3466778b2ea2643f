// Package docsnippet compares the code in a document with the code of files, so that the document
// stays up to date.
package docsnippet

import (
	"regexp"
	"slices"
	"strings"
)

var block = regexp.MustCompile("(?s)```go\n(.*?)```")

// All returns the Go code blocks of a document.
func All(text string) (code []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		code = append(code, m[1])
	}
	return code
}

// gap is a line of a snippet that stands for omitted lines.
var gap = regexp.MustCompile(`(?m)^\t*(?:// \.\.\.|…)\n`)

// InOneOf reports whether one of the files contains each part of a snippet between two gaps.
func InOneOf(files []string, snippet string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		for _, part := range gap.Split(snippet, -1) {
			if part != "" && !contains(file, part) {
				return false
			}
		}
		return true
	})
}

// contains reports whether a file contains the lines of a snippet in sequence, indented or not.
func contains(file, snippet string) bool {
	lines := strings.Split(strings.TrimSuffix(snippet, "\n"), "\n")
	for depth := range 4 {
		var b strings.Builder
		for _, line := range lines {
			b.WriteByte('\n')
			if line != "" {
				b.WriteString(strings.Repeat("\t", depth) + line)
			}
		}
		if strings.Contains("\n"+file, b.String()+"\n") {
			return true
		}
	}
	return false
}
