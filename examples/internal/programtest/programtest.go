// Package programtest has helpers for the tests of the larger examples.
package programtest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Program is the argument of program.Main.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) int

// Refusal is a command line that must be refused, and substrings of the message: the value, the
// option and what is accepted.
type Refusal = struct {
	Args []string
	Want []string
}

// Refuses checks that the program returns the code and prints the message for each command line.
func Refuses(t *testing.T, run Program, code int, refusals []Refusal) {
	t.Helper()
	for _, r := range refusals {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, code, run(context.Background(), append([]string{"program"}, r.Args...), &stdout, &stderr), "%v", r.Args)
		assert.Empty(t, stdout.String(), "%v", r.Args)
		for _, w := range r.Want {
			assert.Contains(t, stderr.String(), w, "%v", r.Args)
		}
	}
}

// Helps checks that -help succeeds and names every option.
func Helps(t *testing.T, run Program, options []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	assert.Zero(t, run(context.Background(), []string{"program", "-help"}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	assert.NotEmpty(t, options)
	for _, name := range options {
		assert.Contains(t, stdout.String(), "-"+name+" ")
	}
}
