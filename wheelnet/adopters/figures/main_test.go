//go:build linux

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The test binary is also the command, which starts itself in the roles of server and clients.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" || os.Getenv("FIGURES_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestFiguresOfAllServers(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-quick")
	cmd.Env = append(os.Environ(), "FIGURES_MAIN=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, want := range []string{
		`(?m)^set and clear +2 goroutines +\d+\.\d +\d+\.\d$`,
		`(?m)^bytes of a connection with deadlines, beyond package net's: 1[0-9][0-9]$`,
		`(?m)^echo +(\d+\.\d+ *){6}$`,
		`(?m)^net/http +(\d+\.\d+ *){6}$`,
		`(?m)^fasthttp +(\d+\.\d+ *){6}$`,
	} {
		assert.Regexp(t, want, string(out))
	}
}

func TestBadArgumentIsNamed(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "now")
	cmd.Env = append(os.Environ(), "FIGURES_MAIN=1")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), `figures: unexpected argument "now"; the program takes only -quick`)
}
