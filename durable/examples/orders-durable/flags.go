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

	"github.com/urfave/cli/v3"
)

// config is what one run is asked to do.
type config struct {
	store   string // a URL; empty: a temporary file
	queue   string
	orders  int
	over    time.Duration // in which the orders are placed
	timeout time.Duration // the time to pay
	kills   int
	seed    uint64 // 0: one from the clock

	patience time.Duration // how long to wait for what should have happened already
}

func defaults() config {
	return config{
		queue:    "orders-durable",
		orders:   600,
		over:     8 * time.Second,
		timeout:  3 * time.Second,
		kills:    4,
		patience: 15 * time.Second,
	}
}

// parse reads the command line; args[0] is the program's name. It returns false if there is nothing to run since the help was asked
// for, and printed.
func parse(args []string, help io.Writer) (cfg config, ok bool, err error) {
	cfg = defaults()
	cmd := &cli.Command{
		Name:            "orders-durable",
		Usage:           "orders that are cancelled if they are not paid in time, though the consumer is killed again and again",
		UsageText:       "go run ./durable/examples/orders-durable [options]   (one dash or two)",
		Flags:           options(&cfg),
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
			return nil
		},
	}
	err = cmd.Run(context.Background(), args)
	return cfg, ok && err == nil, err
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option("store", "keep the queue in the store with this `URL`, without it in a temporary file",
			&value[string]{&cfg.store, storeURL, "file:PATH or a URL of Redis, such as redis://localhost:6379"}),
		option("queue", "use the queue with this `name`", &value[string]{&cfg.queue, func(s string) (string, error) { return s, nil },
			"1 to 128 letters, digits, '.', '_' and '-'"}),
		option("orders", "place `n` orders", within(&cfg.orders, strconv.Atoi, 1, 100_000, "a whole number")),
		option("over", "place them within this `time`", within(&cfg.over, time.ParseDuration, 0, time.Hour, "a time")),
		option("timeout", "let customers pay for this `time`", within(&cfg.timeout, time.ParseDuration, 100*time.Millisecond, time.Hour, "a time")),
		option("kills", "kill the consumer `n` times", within(&cfg.kills, strconv.Atoi, 0, 100, "a whole number")),
		option("seed", "draw who pays when, and when the consumer is killed, from the seed `n`, 0 for another one each time",
			within(&cfg.seed, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }, 0, 1<<64-1, "a whole number")),
	}
}

// storeURL refuses the store that a kill empties; the others are for those who open them.
func storeURL(s string) (string, error) {
	if scheme, _, ok := strings.Cut(strings.ToLower(s), ":"); !ok || scheme == "memory" {
		return "", errors.New("it would not survive the consumer")
	}
	return s, nil
}

func option[T any](name, usage string, v *value[T]) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + " (" + v.accepted + ")", Value: v}
}

// value is an option's value that says what it accepts.
type value[T any] struct {
	to       *T
	parse    func(string) (T, error)
	accepted string
}

// within accepts values from least to most; what says what they are.
func within[T cmp.Ordered](to *T, parse func(string) (T, error), least, most T, what string) *value[T] {
	return &value[T]{to, func(s string) (T, error) {
		v, err := parse(s)
		if err == nil && (v < least || v > most) {
			err = errors.New("out of range")
		}
		return v, err
	}, fmt.Sprintf("%s from %v to %v", what, least, most)}
}

// Set implements [cli.Value].
func (v *value[T]) Set(s string) error {
	parsed, err := v.parse(s)
	if err != nil {
		return errors.New("must be " + v.accepted)
	}
	*v.to = parsed
	return nil
}

// Get implements [cli.Value].
func (v *value[T]) Get() any { return *v.to }

// String implements [cli.Value]: the default, in the help.
func (v *value[T]) String() string {
	if v.to == nil {
		return ""
	}
	return fmt.Sprint(*v.to)
}
