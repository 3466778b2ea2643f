// Package program is how the larger examples begin and end.
package program

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a program and exits with the code that it returns. The context ends with the first
// Ctrl-C; from then on signals have their default effect again, so that a second one kills.
func Main(program func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(program(ctx, os.Args, os.Stdout, os.Stderr))
}
