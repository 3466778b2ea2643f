package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
	"github.com/timingwheel-go/timingwheel/benchmarks/simulation"
	"github.com/timingwheel-go/timingwheel/benchmarks/trace"
	"github.com/urfave/cli/v3"
)

// config is what one run is asked to do.
type config struct {
	trace    trace.Config
	timeout  time.Duration
	choices  []simulation.Choice
	markdown bool
}

const (
	defaultTimeout = 75 * time.Second
	maxTimeout     = time.Hour
	percent        = 100.0
)

// defaultChoices go around the defaults of the library, one dimension at a time. One level of 256 slots of 1 ms is
// not among them: it looks at each timer four times a second and takes half an hour for ten million connections.
const defaultChoices = "1ms/16/6,1ms/64/4,1ms/256/2,1ms/256/3,1ms/256/4,1ms/1024/3,1ms/4096/2,1ms/65536/1," +
	"10ms/64/4,10ms/256/4,10ms/1024/2,10ms/4096/2,100ms/64/3,100ms/256/4,100ms/1024/1"

// parse reads the command line; args[0] is the program's name. It returns false if there is nothing to run
// since the help was asked for, and printed.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = config{trace: trace.Defaults(), timeout: defaultTimeout}
	if cfg.choices, err = parseChoices(defaultChoices); err != nil {
		return cfg, false, err
	}
	const usage = "play a trace of connections with idle timeouts on the timing wheel, for several choices of options"
	text := "go run ./benchmarks/cmd/simulate [options]   (one dash or two)"
	err = command.New("simulate", usage, text, options(&cfg), help, func(cmd *cli.Command) error {
		ok = true
		return cmp.Or(command.NoArguments(cmd), cfg.validate())
	}).Run(context.Background(), args)
	return cfg, ok && err == nil, err
}

func options(cfg *config) []cli.Flag {
	t := &cfg.trace
	share := func(name string, to *float64, most float64, usage string) cli.Flag {
		return option(name, usage, &checked[float64]{to, parsePercent,
			func(v float64) bool { return 0 <= v && v <= most },
			fmt.Sprintf("a number from 0 to %v", most*percent), func(v float64) string { return fmt.Sprint(v * percent) }})
	}
	return []cli.Flag{
		option("conns", "let `n` connections arrive", within(&t.Conns, strconv.Atoi, 1, trace.MaxConns, "a whole number")),
		option("over", "let them arrive over this virtual `time`, on average",
			within(&t.Over, time.ParseDuration, time.Second, trace.MaxFor, "a time")),
		option("for", "simulate this virtual `time`", within(&t.For, time.ParseDuration, time.Second, trace.MaxFor, "a time")),
		option("median", "let half of them live for this `time` or less",
			within(&t.Median, time.ParseDuration, time.Millisecond, trace.MaxFor, "a time")),
		option("sigma", "let the logarithm of the lifetimes have this standard `deviation`",
			within(&t.Sigma, parseFloat, 0, trace.MaxSigma, "a number")),
		option("beat", "let a connection beat once in this `time`",
			within(&t.Beat, time.ParseDuration, trace.MinBeat, trace.MaxBeat, "a time")),
		share("jitter", &t.Jitter, trace.MaxJitter, "let intervals differ by up to this `percentage`"),
		share("silent", &t.Silent, 1, "let this `percentage` fall silent in the end instead of closing"),
		option("timeout", "let the timer of a silent connection fire after this `time`",
			within(&cfg.timeout, time.ParseDuration, time.Millisecond, maxTimeout, "a time")),
		option("seed", "draw the trace from the seed `n`", within(&t.Seed, parseUint, 0, 1<<64-1, "a whole number")),
		option("choices", "measure these `choices` of tick/slots/levels or tick/slots/levels/shards", &checked[[]simulation.Choice]{
			&cfg.choices, parseChoices, func(c []simulation.Choice) bool { return len(c) > 0 }, choicesAccepted, formatChoices}),
		&cli.BoolFlag{Name: "markdown", Usage: "print the table as Markdown", Destination: &cfg.markdown},
	}
}

// validate checks what no option can know alone.
func (c config) validate() error {
	if longest := c.trace.Longest(); longest >= c.timeout {
		return fmt.Errorf("-beat %v with -jitter %v lets beats come up to %v apart: must be less than -timeout (%v), "+
			"or living connections would expire", c.trace.Beat, c.trace.Jitter*percent, longest, c.timeout)
	}
	return c.trace.Validate()
}

const (
	minTick      = time.Millisecond // a turn of the trace
	maxTick      = time.Hour
	maxWheelSize = 1 << 16
	maxLevels    = 16
	maxShards    = 1024
)

var choicesAccepted = fmt.Sprintf("a list, by commas, of tick/slots/levels or tick/slots/levels/shards: whole milliseconds from %v to %v, "+
	"a power of two from 2 to %d, from 1 to %d, from 1 to %d", minTick, maxTick, maxWheelSize, maxLevels, maxShards)

func parseChoices(s string) ([]simulation.Choice, error) {
	var choices []simulation.Choice
	for word := range strings.SplitSeq(s, ",") {
		c, err := parseChoice(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		choices = append(choices, c)
	}
	return choices, nil
}

func parseChoice(s string) (c simulation.Choice, err error) {
	words := strings.Split(s, "/")
	if len(words) < 3 || len(words) > 4 {
		return c, errors.New("neither three nor four parts")
	}
	if c.Tick, err = time.ParseDuration(words[0]); err != nil || c.Tick < minTick || c.Tick > maxTick || c.Tick%minTick != 0 {
		return c, errors.New("not a tick")
	}
	numbers := [3]int{2: 1}
	for i, word := range words[1:] {
		if numbers[i], err = strconv.Atoi(word); err != nil {
			return c, err
		}
	}
	c.WheelSize, c.Levels, c.Shards = numbers[0], numbers[1], numbers[2]
	switch {
	case c.WheelSize < 2 || c.WheelSize > maxWheelSize || c.WheelSize&(c.WheelSize-1) != 0:
		return c, errors.New("not a number of slots")
	case c.Levels < 1 || c.Levels > maxLevels:
		return c, errors.New("not a number of levels")
	case c.Shards < 1 || c.Shards > maxShards:
		return c, errors.New("not a number of shards")
	}
	return c, nil
}

func formatChoices(choices []simulation.Choice) string {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = fmt.Sprint(c)
	}
	return strings.Join(words, ",")
}

// option makes a flag whose help says what it accepts; the backquoted word in usage stands for its value.
func option[T any](name, usage string, v *checked[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// checked is a flag's value that says what it accepts.
type checked[T any] struct {
	to       *T
	parse    func(string) (T, error)
	accepts  func(T) bool
	accepted string
	format   func(T) string
}

func (c *checked[T]) Set(s string) error {
	v, err := c.parse(s)
	if err != nil || !c.accepts(v) {
		return errors.New("must be " + c.accepted)
	}
	*c.to = v
	return nil
}

func (c *checked[T]) Get() any { return *c.to }

func (c *checked[T]) String() string {
	if c.to == nil {
		return ""
	}
	return c.format(*c.to)
}

func within[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T, what string) *checked[T] {
	return &checked[T]{
		to:       to,
		parse:    parse,
		accepts:  func(v T) bool { return least <= v && v <= most }, // false for a NaN
		accepted: fmt.Sprintf("%s from %v to %v", what, least, most),
		format:   func(v T) string { return fmt.Sprint(v) },
	}
}

func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
func parseUint(s string) (uint64, error)   { return strconv.ParseUint(s, 10, 64) }

func parsePercent(s string) (float64, error) {
	v, err := parseFloat(s)
	return v / percent, err
}
