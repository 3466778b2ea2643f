package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/durable"
)

// helpText has the help texts: what a command does, what happens to messages, and examples.
//
//go:embed help.txt
var helpText string

// help returns the help text of a command.
func help(name string) string {
	_, text, _ := strings.Cut("\n"+helpText, "\n# "+name+"\n")
	text, _, _ = strings.Cut(text, "\n# ")
	return strings.TrimSpace(text)
}

// command is a command of the program.
type command struct {
	name, usage string
	args        string // placeholders of the arguments
	least, most int    // number of arguments
	accepts     string // what the arguments must be; empty: only options
	flags       []cli.Flag
	need        access
	check       func(ctx context.Context, cmd *cli.Command) error // before the store is opened; may be nil
	run         func(ctx context.Context, s *session, args []string) error
}

// command returns a command for package cli, which has the help text of its name.
func (a *app) command(c command) *cli.Command {
	return &cli.Command{
		Name: c.name, Usage: c.usage, ArgsUsage: c.args, Description: help(c.name), Flags: c.flags, OnUsageError: usageError,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			err := arguments(cmd, c.least, c.most, cmp.Or(c.accepts, "the command takes only options"))
			if err == nil && c.check != nil {
				err = c.check(ctx, cmd)
			}
			if err != nil {
				return err
			}
			return a.with(ctx, c.need, func(s *session) error { return c.run(ctx, s, cmd.Args().Slice()) })
		},
	}
}

// noCommand is the action of a command with subcommands.
func noCommand(_ context.Context, cmd *cli.Command) error {
	switch {
	case !cmd.Args().Present() && cmd == cmd.Root():
		return cli.ShowRootCommandHelp(cmd)
	case !cmd.Args().Present():
		return cli.ShowSubcommandHelp(cmd)
	}
	var names []string
	for _, c := range cmd.Commands {
		names = append(names, c.Name)
	}
	return usage(cmd, "unknown command %q; it must be one of %s", cmd.Args().First(), strings.Join(names, ", "))
}

// usage returns an error about the command line.
func usage(cmd *cli.Command, format string, args ...any) error {
	return fmt.Errorf("%w command line: %s\nSee %s -help", durable.ErrInvalid, fmt.Sprintf(format, args...), cmd.FullName())
}

func usageError(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	return usage(cmd, "%v", err)
}

// arguments returns an error for an empty argument, for fewer than least and for more than most.
func arguments(cmd *cli.Command, least, most int, accepted string) error {
	args := cmd.Args().Slice()
	switch {
	case len(args) > most:
		return usage(cmd, "unexpected argument %q; %s", args[most], accepted)
	case len(args) < least:
		return usage(cmd, "an argument is missing; %s", accepted)
	}
	if i := slices.Index(args, ""); i >= 0 {
		return usage(cmd, "argument %d is empty; %s", i+1, accepted)
	}
	return nil
}

// idsOr returns an error unless there are either ids or options that select messages.
func idsOr(cmd *cli.Command, selected bool, options string) error {
	if selected {
		return arguments(cmd, 0, 0, "the command takes ids or "+options+", not both")
	}
	return arguments(cmd, 1, math.MaxInt, "the command takes ids of messages, or "+options)
}
