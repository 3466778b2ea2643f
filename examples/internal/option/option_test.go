package option_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
)

func TestRunReturnsTheExitCode(t *testing.T) {
	t.Parallel()
	errProgram, errValidate := errors.New("it went wrong"), errors.New("n and d do not match")
	for _, tt := range []struct {
		args      []string
		validate  error
		program   error
		code      int
		ran       bool
		out, fail string
	}{
		{code: option.ExitOK, ran: true},
		{args: []string{"-n", "3", "-d=5s"}, code: option.ExitOK, ran: true},
		{program: errProgram, code: option.ExitFailed, ran: true, fail: "example: it went wrong\n"},
		{validate: errValidate, code: option.ExitUsage, fail: "n and d do not match"},
		{args: []string{"-n", "11"}, code: option.ExitUsage, fail: "must be a whole number from 1 to 10"},
		{args: []string{"-d", "x"}, code: option.ExitUsage, fail: "must be a time from 1s to 1m0s"},
		{args: []string{"-help"}, code: option.ExitOK, out: "a whole number from 1 to 10"},
	} {
		n, d, ran := 1, time.Second, false
		c := option.Command{Name: "example", Usage: "an example", Flags: []cli.Flag{
			option.Count("n", &n, 1, 10, "take `n`"),
			option.Duration("d", &d, time.Second, time.Minute, "wait for this `time`"),
		}}
		var stdout, stderr bytes.Buffer
		code := c.Run(append([]string{"example"}, tt.args...), &stdout, &stderr, func() error { return tt.validate }, func() error {
			ran = true
			return tt.program
		})
		assert.Equal(t, tt.code, code, tt.args)
		assert.Equal(t, tt.ran, ran, tt.args)
		assert.Contains(t, stdout.String(), tt.out, tt.args)
		assert.Contains(t, stderr.String(), tt.fail, tt.args)
		if len(tt.args) == 3 {
			assert.Equal(t, 3, n)
			assert.Equal(t, 5*time.Second, d)
		}
	}
}
