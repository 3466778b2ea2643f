// Package option makes command-line options that say what they accept: in the help, and where a
// value is refused.
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

// Command is a program that has options only.
type Command struct {
	Name  string
	Usage string // what the program is, in half a sentence
	Flags []cli.Flag
}

// Parse reads the command line; args[0] is the program's name. It returns false if there is nothing
// to run since the help was asked for, and printed, or for an error, which is printed nowhere.
// Validate checks what no option can know alone.
func (c Command) Parse(args []string, help io.Writer, validate func() error) (ok bool, err error) {
	cmd := &cli.Command{
		Name:            c.Name,
		Usage:           c.Usage,
		UsageText:       "go run ./examples/" + c.Name + " [options]   (one dash or two)",
		Flags:           c.Flags,
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          help,
		ErrWriter:       io.Discard, // errors are returned, and printed once
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		OnUsageError:    func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err },
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return fmt.Errorf("unexpected argument %q: only options are accepted", cmd.Args().First())
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
	ExitRight = iota
	ExitWrong
	ExitUsage
)

// Run is a whole program: it reads the command line, calls program, and returns the exit code. An
// error of program is printed and exits with [ExitWrong]; options that are not accepted exit with
// [ExitUsage].
func (c Command) Run(args []string, stdout, stderr io.Writer, validate, program func() error) int {
	ok, err := c.Parse(args, stdout, validate)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\nSee %s -help.\n", c.Name, err, c.Name)
		return ExitUsage
	}
	if !ok { // The help was asked for and printed.
		return ExitRight
	}
	if err := program(); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
		return ExitWrong
	}
	return ExitRight
}

// New makes an option whose help says what it accepts; the backquoted word in usage stands for its
// value.
func New[T any](name, usage string, v *Value[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// Value is an option's value that says what it accepts. [Within] and [OneOf] make one.
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
		return errors.New("must be " + c.accepted)
	}
	*c.to = v
	return nil
}

// Get implements [cli.Value].
func (c *Value[T]) Get() any { return *c.to }

// String implements [cli.Value]: the default, in the help.
func (c *Value[T]) String() string {
	if c.to == nil {
		return ""
	}
	return fmt.Sprint(*c.to)
}

// Within accepts values from least to most; what says what they are, as "a whole number" does.
func Within[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T, what string) *Value[T] {
	return &Value[T]{
		to:       to,
		parse:    parse,
		accepts:  func(v T) bool { return least <= v && v <= most }, // false for a NaN
		accepted: fmt.Sprintf("%s from %v to %v", what, least, most),
	}
}

// OneOf accepts these names.
func OneOf(to *string, names ...string) *Value[string] {
	return &Value[string]{
		to:       to,
		parse:    func(s string) (string, error) { return s, nil },
		accepts:  func(s string) bool { return slices.Contains(names, s) },
		accepted: fmt.Sprintf("one of %v", names),
	}
}

// Percent makes an option that is a share of a hundred.
func Percent(name string, to *float64, usage string) cli.Flag {
	return New(name, usage, Within(to, ParseFloat, 0, 100, "a number"))
}

// Seed makes the option of a random generator.
func Seed(to *uint64, usage string) cli.Flag {
	return New("seed", usage, Within(to, parseUint, 0, 1<<64-1, "a whole number"))
}

// Count makes an option that is a whole number from least to most.
func Count(name string, to *int, least, most int, usage string) cli.Flag {
	return New(name, usage, Within(to, strconv.Atoi, least, most, "a whole number"))
}

// Duration makes an option that is a time from least to most.
func Duration(name string, to *time.Duration, least, most time.Duration, usage string) cli.Flag {
	return New(name, usage, Within(to, time.ParseDuration, least, most, "a time"))
}

// ParseFloat parses a number, for [Within].
func ParseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
func parseUint(s string) (uint64, error)   { return strconv.ParseUint(s, 10, 64) }
