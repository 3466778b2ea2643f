// Command bench measures the durable queue against its targets: on Redis, with and without an
// append-only file, and in a directory. The same run measures hibiken/asynq on the same server, and
// River with SQLite on the same disk. The output is a table of the figures and their targets.
//
//	go -C durable/bench run .
//
// bench starts a private redis-server on a free loopback port. With -redis it uses another server
// instead, and deletes all data of that server. The command in the folder postgres measures the
// queue on PostgreSQL.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/timingwheel-go/timingwheel/durable/bench/internal/load"
)

func main() { load.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b := load.New(stderr, 200_000, "redis", "aof", "asynq", "directory", "river")
	b.Flags.StringVar(&b.Server, "redis", "", "use the server at this `address`, and delete all its data; by default start one")
	if err := b.Parse(args); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *load.Bench) error
	}{{"redis", redisPart}, {"aof", aofPart}, {"directory", directoryPart}} {
		if b.Skip[part.name] {
			continue
		}
		if err := part.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return b.Write(stdout)
}

func bytesOf(f float64) string { return fmt.Sprintf("%.0f B", f) }
