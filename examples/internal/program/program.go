// Package program starts and ends the larger examples.
package program

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a program and exits with the code that it returns. The first Ctrl-C cancels the context
// and restores the default effect of signals, so that a second Ctrl-C kills the program.
func Main(program func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(program(ctx, os.Args, os.Stdout, os.Stderr))
}
