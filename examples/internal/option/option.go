// Package option has command-line options that say what they accept, in the help text and in
// errors.
package option

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"
)

// Command is a program that takes only options.
type Command struct {
	Name  string
	Usage string // short description
	Flags []cli.Flag
}

// Parse parses the command line. args[0] is the name of the program. Parse returns false for an
// error, and if it has only printed the help text. It does not print errors. validate checks
// constraints between options.
func (c Command) Parse(args []string, help io.Writer, validate func() error) (ok bool, err error) {
	cmd := &cli.Command{
		Name:            c.Name,
		Usage:           c.Usage,
		UsageText:       "go run ./examples/" + c.Name + " [options]   (one dash or two)",
		Flags:           c.Flags,
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          help,
		ErrWriter:       io.Discard, // the caller prints the error
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		OnUsageError:    func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err },
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fmt.Errorf("unexpected argument %q; the program takes only options", cmd.Args().First())
			}
			ok = true
			return validate()
		},
	}
	err = cmd.Run(context.Background(), args)
	return ok && err == nil, err
}

// Exit codes of the programs that [Command.Run] runs.
const (
	ExitOK = iota
	ExitFailed
	ExitUsage
)

// Run parses the command line, calls program and returns the exit code. It prints errors. The code
// is [ExitFailed] after an error of program, and [ExitUsage] for invalid options.
func (c Command) Run(args []string, stdout, stderr io.Writer, validate, program func() error) int {
	ok, err := c.Parse(args, stdout, validate)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\nSee %s -help.\n", c.Name, err, c.Name)
		return ExitUsage
	}
	if !ok { // printed the help text
		return ExitOK
	}
	if err := program(); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
		return ExitFailed
	}
	return ExitOK
}

// New returns an option whose help says what it accepts. The backquoted word in usage names its
// value.
func New[T any](name, usage string, v *Value[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// Value is the value of an option, from [Within] or [OneOf].
type Value[T any] struct {
	to       *T
	parse    func(string) (T, error)
	accepts  func(T) bool
	accepted string
}

// Set implements [cli.Value].
func (c *Value[T]) Set(s string) error {
	v, err := c.parse(s)
	if err != nil || !c.accepts(v) {
		return errors.New("it must be " + c.accepted)
	}
	*c.to = v
	return nil
}

// Get implements [cli.Value].
func (c *Value[T]) Get() any { return *c.to }

// String implements [cli.Value]. It returns the default for the help text.
func (c *Value[T]) String() string {
	if c.to == nil {
		return ""
	}
	return fmt.Sprint(*c.to)
}

// Within returns a Value that accepts values from least to most. what describes them, such as
// "a whole number".
func Within[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T, what string) *Value[T] {
	return &Value[T]{
		to:       to,
		parse:    parse,
		accepts:  func(v T) bool { return least <= v && v <= most }, // false for a NaN
		accepted: fmt.Sprintf("%s from %v to %v", what, least, most),
	}
}

// OneOf returns a Value that accepts the names.
func OneOf(to *string, names ...string) *Value[string] {
	return &Value[string]{
		to:       to,
		parse:    func(s string) (string, error) { return s, nil },
		accepts:  func(s string) bool { return slices.Contains(names, s) },
		accepted: fmt.Sprintf("one of %v", names),
	}
}

// Percent returns an option with a number from 0 to 100.
func Percent(name string, to *float64, usage string) cli.Flag {
	return New(name, usage, Within(to, ParseFloat, 0, 100, "a number"))
}

// Seed returns the option for the seed of a random generator.
func Seed(to *uint64, usage string) cli.Flag {
	return New("seed", usage, Within(to, parseUint, 0, 1<<64-1, "a whole number"))
}

// Count returns an option with a whole number from least to most.
func Count(name string, to *int, least, most int, usage string) cli.Flag {
	return New(name, usage, Within(to, strconv.Atoi, least, most, "a whole number"))
}

// Duration returns an option with a duration from least to most.
func Duration(name string, to *time.Duration, least, most time.Duration, usage string) cli.Flag {
	return New(name, usage, Within(to, time.ParseDuration, least, most, "a time"))
}

// ParseFloat is a parser for [Within].
func ParseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
func parseUint(s string) (uint64, error)   { return strconv.ParseUint(s, 10, 64) }
