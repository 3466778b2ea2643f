// Package command is what the programs of this module have in common: how they begin, and how they read their options.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"
)

// Main runs a program and exits with the code that it returns. The context ends with the first Ctrl-C; from then on
// signals have their default effect again, so that a second one kills.
func Main(program func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(program(ctx, os.Args, os.Stdout, os.Stderr))
}

// New returns a command line of options, which action is called with unless the help is asked for. That goes to help;
// errors are returned by the command's Run and printed nowhere.
func New(name, usage, text string, flags []cli.Flag, help io.Writer, action func(cmd *cli.Command) error) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           usage,
		UsageText:       text,
		Flags:           flags,
		HideHelpCommand: true,
		HideVersion:     true,
		Writer:          help,
		ErrWriter:       io.Discard,
		ExitErrHandler:  func(context.Context, *cli.Command, error) {},
		OnUsageError:    func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err },
		Action:          func(_ context.Context, cmd *cli.Command) error { return action(cmd) },
	}
}

// NoArguments returns an error that names the first argument that is not an option.
func NoArguments(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return fmt.Errorf("unexpected argument %q: only options are accepted", cmd.Args().First())
	}
	return nil
}
