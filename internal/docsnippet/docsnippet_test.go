package docsnippet

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSnippetIsFoundWithAnyIndentation(t *testing.T) {
	t.Parallel()
	file := "package p\n\nfunc f() {\n\tif x {\n\n\t\ty()\n\t}\n}\n"
	files := []string{"package q\n", file}
	for _, s := range []string{"func f() {\n", "if x {\n\n\ty()\n}\n", "y()\n", "package p\n", "}\n", "func f() {\n\t// ...\n}\n", "func f() {\n…\n}\n"} {
		assert.True(t, InOneOf(files, s), "%q", s)
	}
	for _, s := range []string{
		"if x {\n\ty()\n}\n", "y\n", "if x {\n\n\t\ty()\n}\n", "func f() {\n\ty()\n", "z()\n", "y()\n// ...\nz()\n",
		"package q\n// ...\npackage p\n",
	} {
		assert.False(t, InOneOf(files, s), "%q", s)
	}
	assert.Equal(t, []string{"a\n", "b\n"}, All("x\n```go\na\n```\n```\nno\n```\n```go\nb\n```\n"))
}
