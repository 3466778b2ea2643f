package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	name, usage string // the name of a subcommand follows its command's name
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
	words := strings.Fields(c.name)
	return &cli.Command{
		Name: words[len(words)-1], Usage: c.usage, ArgsUsage: c.args, Description: help(c.name), Flags: c.flags, OnUsageError: usageError,
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

// option returns a flag whose help and errors name the accepted values. The help has the initial
// value if it is one of them. The backquoted word in usage is the placeholder of the value.
func option[T any](name, usage string, to *T, accepted string, parse func(string) (T, bool)) cli.Flag {
	f := &cli.StringFlag{Name: name, Usage: usage + " (" + accepted + ")", Validator: func(s string) error {
		x, ok := parse(s)
		if !ok {
			return errors.New("it must be " + accepted)
		}
		*to = x
		return nil
	}}
	if initial := fmt.Sprint(*to); f.Validator(initial) == nil {
		f.DefaultText = initial
	}
	return f
}

// flag returns an option without a value.
func flag(name, usage string, to *bool) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Destination: to, HideDefault: true}
}

// number accepts whole numbers from least to most.
func number[T int | int64](name, usage string, to *T, least, most T) cli.Flag {
	return option(name, usage, to, fmt.Sprintf("a whole number from %v to %v", least, most), func(s string) (T, bool) {
		n, err := strconv.ParseInt(s, 10, 64)
		return T(n), err == nil && int64(least) <= n && n <= int64(most)
	})
}

const (
	day      = 24 * time.Hour
	mostDays = math.MaxInt64 / int64(day) // the most days in a duration, about 292 years
)

// duration accepts durations of least or more, also in days.
func duration(name, usage string, to *time.Duration, least time.Duration) cli.Flag {
	accepted := fmt.Sprintf("a duration of %v or more, up to %dd, such as 250ms, 1h30m or 7d", least, mostDays)
	return option(name, usage, to, accepted, func(s string) (time.Duration, bool) {
		d, err := parseDuration(s)
		return d, err == nil && d >= least
	})
}

// parseDuration accepts the syntax of time.ParseDuration, and a whole number of days.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil {
			return 0, err
		}
		s = fmt.Sprint(24*n, "h")
	}
	return time.ParseDuration(s)
}

// header collects headers, each given as key=value. A key may be given once.
func header(usage string, to *map[string]string) cli.Flag {
	*to = map[string]string{}
	return option("header", usage, to, "key=value; several may be given, with different keys", func(s string) (map[string]string, bool) {
		key, value, ok := strings.Cut(s, "=")
		if _, again := (*to)[key]; !ok || again || key == "" {
			return nil, false
		}
		(*to)[key] = value
		return *to, true
	})
}

// pastTime accepts a past time, or a duration, which counts back from now.
func pastTime(name, usage string, to *time.Time) cli.Flag {
	begin := time.Now() // -until 0s, which would select all, is not before begin
	return option(name, usage, to, "a time that has passed, with its zone, such as 2020-12-31T23:59:00Z, or how long ago, such as 90m or 2d",
		func(s string) (time.Time, bool) {
			t, err := time.Parse(time.RFC3339, s)
			if d, failed := parseDuration(s); failed == nil {
				t, err = time.Now().Add(-d), nil
			}
			return t, err == nil && !t.IsZero() && t.Before(begin)
		})
}

func instant(name, usage string, to *time.Time) cli.Flag {
	return option(name, usage, to, "a time with its zone, such as 2030-12-31T23:59:00Z or 2030-12-31T23:59:00+01:00",
		func(s string) (time.Time, bool) {
			t, err := time.Parse(time.RFC3339, s)
			return t, err == nil && !t.IsZero()
		})
}

// dueFlags returns the options for the due time of a message: a delay or a time, not both.
func dueFlags(m *durable.Message) []cli.Flag {
	return []cli.Flag{
		duration("delay", "make the message due after this `duration`", &m.Delay, 0),
		instant("at", "make the message due at this `time`, or now if the time has passed", &m.At),
	}
}
