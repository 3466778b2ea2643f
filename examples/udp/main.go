// Udp delivers messages over a network that loses, doubles and reorders packets: each exactly once,
// and in order. It has sequence numbers, acknowledgements, and retransmission timers as RFC 6298
// describes them, and gives up where nobody answers.
//
// A single goroutine owns a socket and everything behind it, with a timing wheel in Manual mode:
// Next says until when to wait for packets, and Advance runs what is due. So the protocol needs no
// lock, and knows neither sockets nor clocks. The program first simulates an hour of it, in a
// moment, and then does it over real sockets on the loopback interface, with faults that it injects
// itself. It exits with 1 if a message was lost, doubled or misplaced.
//
//	go run ./examples/udp
//	go run ./examples/udp -loss 25 -messages 5000 -seed 7
//
// Read loop.go for how a wheel in Manual mode and a socket go together, sender.go and rto.go for
// the timers, and sim.go for how to test such a thing.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/timingwheel-go/timingwheel/examples/internal/option"
	"github.com/timingwheel-go/timingwheel/examples/internal/program"
)

// config is what one run over sockets is asked to do.
type config struct {
	protocol
	faults
	flows    int
	messages int // of each flow
	seed     uint64

	simulated simulation
}

func defaults() config {
	return config{
		// RFC 6298 asks for a second at first and at least; on a loopback interface nobody wants to
		// wait for that.
		protocol: protocol{
			timing: timing{initial: 50 * time.Millisecond, least: 10 * time.Millisecond, most: 250 * time.Millisecond, tick: time.Millisecond, tries: 24},
			window: 64,
			flows:  1000,
		},
		faults:   faults{loss: 10, duplicate: 5, jitter: 5 * time.Millisecond},
		flows:    20,
		messages: 500,
		seed:     1,

		simulated: newSimulation(),
	}
}

func main() { program.Main(udp) }

// udp is the program without its process: it returns the exit code.
func udp(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "udp",
		Usage: "messages over a bad network, with retransmission timers on a timing wheel in Manual mode",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("flows", &cfg.flows, 1, 200, "open `n` flows"),
		option.Count("messages", &cfg.messages, 1, 1_000_000, "send `n` messages in each"),
		// With much more all tries of a message are lost now and then, and the protocol rightly
		// gives up.
		option.New("loss", "lose this `percent` of the packets", option.Within(&cfg.loss, option.ParseFloat, 0, 25, "a number")),
		option.Percent("duplicate", &cfg.duplicate, "double this `percent` of the packets"),
		option.Duration("jitter", &cfg.jitter, 0, time.Second, "hold each packet back for up to this `time`"),
		option.Seed(&cfg.seed, "draw what happens to packets from the seed `n`"),
	}
}

// validate checks what no option can know alone.
func (cfg *config) validate() error {
	const most = 5_000_000 // all are queued at first, at about 150 bytes
	if cfg.flows*cfg.messages > most {
		return fmt.Errorf("-messages %d for -flows %d: must be at most %d in all", cfg.messages, cfg.flows, most)
	}
	// Nothing here slows down where the kernel's buffers overflow, as a protocol for a real network
	// must: so no more is on its way than with the defaults.
	cfg.window = min(cfg.window, max(1280/cfg.flows, 1))
	return nil
}
