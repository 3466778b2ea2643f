package main

import (
	"errors"
	"os/exec"
	"slices"
	"sync"
)

// children are the running commands. The commands do not receive the signals of the terminal, so
// the first Ctrl-C does not end them.
type children struct {
	mu     sync.Mutex
	all    []*exec.Cmd
	killed bool
}

var errKilled = errors.New("delayq is being ended")

// run starts a command, which was created with a context, and waits for it. After kill, run returns
// errKilled.
func (c *children) run(cmd *exec.Cmd) error {
	setProcessGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return errKilled
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.all = append(c.all, cmd)
	c.mu.Unlock()
	err := cmd.Wait()
	c.mu.Lock()
	c.all = slices.DeleteFunc(c.all, func(other *exec.Cmd) bool { return other == cmd })
	if c.killed {
		return errKilled
	}
	return err
}

func (c *children) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// kill ends all commands and prevents new ones.
func (c *children) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	for _, cmd := range c.all {
		_ = killGroup(cmd) // the command may have ended by itself
	}
}
