package main

import (
	"cmp"
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

// option returns a flag whose help names the accepted values. The backquoted word in usage is the
// placeholder of the value.
func option[T any](name, usage string, v *checked[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// flag returns an option without a value.
func flag(name, usage string, to *bool) cli.Flag {
	return &cli.BoolFlag{Name: name, Usage: usage, Destination: to, HideDefault: true}
}

// checked is the value of an option, with a description of the accepted values. It implements
// [cli.Value].
type checked[T any] struct {
	to       *T
	parse    func(string) (T, error)
	accepts  func(T) bool
	accepted string
}

func (c *checked[T]) Set(s string) error {
	v, err := c.parse(s)
	if err != nil || !c.accepts(v) {
		return errors.New("it must be " + c.accepted)
	}
	*c.to = v
	return nil
}

func (c *checked[T]) Get() any { return *c.to }

// String returns the default value for the help.
func (c *checked[T]) String() string {
	if c.to == nil {
		return ""
	}
	switch v := any(*c.to).(type) {
	case time.Time:
		if v.IsZero() {
			return ""
		}
	case map[string]string:
		return ""
	}
	return fmt.Sprint(*c.to)
}

// number accepts whole numbers from least to most.
func number(to *int, least, most int) *checked[int] {
	return within(to, strconv.Atoi, least, most, "a whole number")
}

// duration accepts durations of least or more, also in days.
func duration(to *time.Duration, least time.Duration) *checked[time.Duration] {
	return &checked[time.Duration]{to, parseDuration, func(d time.Duration) bool { return d >= least },
		fmt.Sprintf("a duration of %v or more, up to %dd, such as 250ms, 1h30m or 7d", least, mostDays)}
}

func within[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T, what string) *checked[T] {
	return &checked[T]{to, parse, func(v T) bool { return least <= v && v <= most },
		fmt.Sprintf("%s from %v to %v", what, least, most)}
}

// oneOf accepts one of the names.
func oneOf(to *string, names ...string) *checked[string] {
	return &checked[string]{to, func(s string) (string, error) { return s, nil },
		func(s string) bool { return slices.Contains(names, s) }, strings.Join(names, " or ")}
}

const (
	day      = 24 * time.Hour
	mostDays = math.MaxInt64 / int64(day) // the most days in a duration, about 292 years
)

// parseDuration accepts the syntax of time.ParseDuration, and a whole number of days.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 64)
		if err == nil && n > uint64(mostDays) {
			err = strconv.ErrRange
		}
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(s)
}

// header collects headers, each given as key=value. A key may be given once.
func header(to *map[string]string) *checked[map[string]string] {
	*to = map[string]string{}
	parse := func(s string) (map[string]string, error) {
		key, value, ok := strings.Cut(s, "=")
		if _, again := (*to)[key]; !ok || again || key == "" {
			return nil, errors.New("no header")
		}
		(*to)[key] = value
		return *to, nil
	}
	return &checked[map[string]string]{to, parse, func(map[string]string) bool { return true },
		"key=value; several may be given, with different keys"}
}

// pastTime accepts a past time, or a duration, which counts back from now.
func pastTime(to *time.Time) *checked[time.Time] {
	parse := func(s string) (time.Time, error) {
		if d, err := parseDuration(s); err == nil {
			return time.Now().Add(-d), nil
		}
		return time.Parse(time.RFC3339, s)
	}
	begin := time.Now() // -until 0s, which would select all, is not before begin
	return &checked[time.Time]{to, parse, func(t time.Time) bool { return !t.IsZero() && t.Before(begin) },
		"a time that has passed, with its zone, such as 2020-12-31T23:59:00Z, or how long ago, such as 90m or 2d"}
}

// futureTime accepts a time.
func futureTime(to *time.Time) *checked[time.Time] {
	return &checked[time.Time]{to, func(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) },
		func(t time.Time) bool { return !t.IsZero() },
		"a time with its zone, such as 2030-12-31T23:59:00Z or 2030-12-31T23:59:00+01:00"}
}

// due is the due time in a command line: a delay or a time, not both.
type due struct {
	delay time.Duration
	at    time.Time
}

func (d *due) flags() []cli.Flag {
	return []cli.Flag{
		option("delay", "make the message due after this `duration`", duration(&d.delay, 0)),
		option("at", "make the message due at this `time`, or now if the time has passed", futureTime(&d.at)),
	}
}

// check returns an error if both are given, or neither although one is needed.
func (d *due) check(cmd *cli.Command, needed bool) error {
	switch {
	case cmd.IsSet("delay") && cmd.IsSet("at"):
		return usage(cmd, "-delay is %v and -at is %s; only one of them may be given", d.delay, d.at.Format(time.RFC3339))
	case needed && !cmd.IsSet("delay") && !cmd.IsSet("at"):
		return usage(cmd, "the new time is missing; give -delay or -at")
	}
	return nil
}

// String returns the due time as text: "at" a time or "in" a duration.
func (d *due) String() string {
	if !d.at.IsZero() {
		return "at " + d.at.Format(time.RFC3339)
	}
	return "in " + formatDuration(d.delay)
}

// usage returns an error about the command line.
func usage(cmd *cli.Command, format string, args ...any) error {
	return fmt.Errorf("%w command line: %s\nSee %s -help", durable.ErrInvalid, fmt.Sprintf(format, args...), cmd.FullName())
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

// noArguments returns an error if there are arguments.
func noArguments(cmd *cli.Command) error {
	return arguments(cmd, 0, 0, "the command takes only options")
}
