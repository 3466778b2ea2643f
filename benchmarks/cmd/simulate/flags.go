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

// config holds the options of one run.
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

// defaultChoices vary the defaults of the library in one dimension at a time. They exclude one
// level of 256 slots of 1 ms, which visits each timer four times per second and takes half an
// hour for ten million connections.
const defaultChoices = "1ms/16/6,1ms/64/4,1ms/256/2,1ms/256/3,1ms/256/4,1ms/1024/3,1ms/4096/2,1ms/65536/1," +
	"10ms/64/4,10ms/256/4,10ms/1024/2,10ms/4096/2,100ms/64/3,100ms/256/4,100ms/1024/1"

// parse parses the command line. args[0] is the name of the program. parse returns false if it has
// only printed the help text.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = config{trace: trace.Defaults(), timeout: defaultTimeout}
	if cfg.choices, err = parseChoices(defaultChoices); err != nil {
		return cfg, false, err
	}
	const usage = "play a trace of connections with idle timeouts on the timing wheel, for several choices of options"
	text := "go -C benchmarks run ./cmd/simulate [options]   (one dash or two)"
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
		option("conns", "`number` of connections", within(&t.Conns, strconv.Atoi, 1, trace.MaxConns, "a whole number")),
		option("over", "mean virtual `duration` until all have arrived",
			within(&t.Over, time.ParseDuration, time.Second, trace.MaxFor, "a duration")),
		option("for", "virtual `duration` of the simulation", within(&t.For, time.ParseDuration, time.Second, trace.MaxFor, "a duration")),
		option("median", "median `lifetime`",
			within(&t.Median, time.ParseDuration, time.Millisecond, trace.MaxFor, "a duration")),
		option("sigma", "standard `deviation` of the logarithm of lifetimes",
			within(&t.Sigma, parseFloat, 0, trace.MaxSigma, "a number")),
		option("beat", "mean `interval` between two beats of a connection",
			within(&t.Beat, time.ParseDuration, trace.MinBeat, trace.MaxBeat, "a duration")),
		share("jitter", &t.Jitter, trace.MaxJitter, "deviation of an interval from the mean, at most this `percentage`"),
		share("silent", &t.Silent, 1, "`percentage` of connections that end by falling silent instead of closing"),
		option("timeout", "idle `timeout` of a connection",
			within(&cfg.timeout, time.ParseDuration, time.Millisecond, maxTimeout, "a duration")),
		option("seed", "random `seed` of the trace", within(&t.Seed, parseUint, 0, 1<<64-1, "a whole number")),
		option("choices", "`choices` of options to measure", &checked[[]simulation.Choice]{
			&cfg.choices, parseChoices, func(c []simulation.Choice) bool { return len(c) > 0 }, choicesAccepted, formatChoices}),
		&cli.BoolFlag{Name: "markdown", Usage: "print the table as Markdown", Destination: &cfg.markdown},
	}
}

// validate checks constraints between options.
func (c config) validate() error {
	if longest := c.trace.Longest(); longest >= c.timeout {
		return fmt.Errorf("-beat %v with -jitter %v allows %v between two beats; it must be less than -timeout (%v), "+
			"otherwise live connections would expire", c.trace.Beat, c.trace.Jitter*percent, longest, c.timeout)
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

var choicesAccepted = fmt.Sprintf("a comma-separated list of tick/slots/levels or tick/slots/levels/shards: whole milliseconds from %v to %v, "+
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
		return c, errors.New("not three or four parts")
	}
	if c.Tick, err = time.ParseDuration(words[0]); err != nil || c.Tick < minTick || c.Tick > maxTick || c.Tick%minTick != 0 {
		return c, errors.New("invalid tick")
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
		return c, errors.New("invalid number of slots")
	case c.Levels < 1 || c.Levels > maxLevels:
		return c, errors.New("invalid number of levels")
	case c.Shards < 1 || c.Shards > maxShards:
		return c, errors.New("invalid number of shards")
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

// option returns a flag whose help says what it accepts. The backquoted word in usage names its
// value.
func option[T any](name, usage string, v *checked[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// checked is the value of a flag. Its error says what it accepts.
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
		return errors.New("it must be " + c.accepted)
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
