// Package option makes command-line options that say what they accept: in the help, and where a value is
// refused.
package option

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/urfave/cli/v3"
)

// Command is a program that has options only.
type Command struct {
	Name  string
	Usage string // what the program is, in half a sentence
	Flags []cli.Flag
}

// Parse reads the command line; args[0] is the program's name. It returns false if there is nothing to run
// since the help was asked for, and printed, or for an error, which is printed nowhere. Validate checks what
// no option can know alone.
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

// New makes an option whose help says what it accepts; the backquoted word in usage stands for its value.
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
	return New(name, usage, Within(to, parseFloat, 0, 100, "a number"))
}

// Seed makes the option of a random generator.
func Seed(to *uint64, usage string) cli.Flag {
	return New("seed", usage, Within(to, parseUint, 0, 1<<64-1, "a whole number"))
}

func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
func parseUint(s string) (uint64, error)   { return strconv.ParseUint(s, 10, 64) }
