// Package command has the start and the command line of the programs of this module.
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

// Main runs a program and exits with the code that it returns. The first Ctrl-C cancels the context
// and restores the default effect of signals, so that a second Ctrl-C kills the program.
func Main(program func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(program(ctx, os.Args, os.Stdout, os.Stderr))
}

// New returns a command with these flags. It calls action unless the user asks for the help text,
// which it writes to help. Run returns errors and does not print them.
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

// NoArguments returns an error that names the first argument, if there is any besides options.
func NoArguments(cmd *cli.Command) error {
	if cmd.Args().Present() {
		return fmt.Errorf("unexpected argument %q; the program takes only options", cmd.Args().First())
	}
	return nil
}
