// Udp delivers messages exactly once and in order over a network that loses, duplicates and
// reorders packets. The protocol has sequence numbers, acknowledgements and the retransmission
// timers of RFC 6298. It gives up if the peer does not answer.
//
// One goroutine owns a socket and its protocol state, with a timing wheel in Manual mode: Next
// returns the deadline of the next read, and Advance runs the due timers. So the protocol needs no
// lock, and it depends neither on sockets nor on clocks. The program first simulates an hour in
// virtual time. Then it uses real sockets on the loopback interface, with injected faults. The exit
// code is 1 if a message was lost, duplicated or reordered.
//
//	go run ./examples/udp
//	go run ./examples/udp -loss 25 -messages 5000 -seed 7
//
// Read loop.go for a wheel in Manual mode with a socket, sender.go and rto.go for the timers, and
// sim.go for testing such a protocol.
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

// config holds the options of a run over sockets.
type config struct {
	protocol
	faults
	flows    int
	messages int // of each flow
	seed     uint64

	silentTries int // tries of the flow to a socket that does not answer
	simulated   simulation
}

func defaults() config {
	return config{
		// RFC 6298 requires an initial and a minimum timeout of a second, which is too long for a
		// loopback interface.
		protocol: protocol{
			timing: timing{initial: 50 * time.Millisecond, least: 10 * time.Millisecond, most: 250 * time.Millisecond, tick: time.Millisecond, tries: 24},
			window: 64,
			flows:  1000,
		},
		faults:   faults{loss: 10, duplicate: 5, jitter: 5 * time.Millisecond},
		flows:    20,
		messages: 500,
		seed:     1,

		silentTries: 24,
		simulated:   newSimulation(),
	}
}

func main() { program.Main(udp) }

// udp runs the program and returns its exit code.
func udp(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	command := option.Command{
		Name:  "udp",
		Usage: "messages over an unreliable network, with retransmission timers on a timing wheel in Manual mode",
		Flags: options(&cfg),
	}
	return command.Run(args, stdout, stderr, cfg.validate, func() error { return run(ctx, cfg, stdout) })
}

func options(cfg *config) []cli.Flag {
	return []cli.Flag{
		option.Count("flows", &cfg.flows, 1, 200, "`number` of flows"),
		option.Count("messages", &cfg.messages, 1, 1_000_000, "`number` of messages in each flow"),
		// With a higher loss all tries of a message are lost occasionally, and the protocol gives
		// up.
		option.New("loss", "`percentage` of packets that are lost", option.Within(&cfg.loss, option.ParseFloat, 0, 25, "a number")),
		option.Percent("duplicate", &cfg.duplicate, "`percentage` of packets that are duplicated"),
		option.Duration("jitter", &cfg.jitter, 0, time.Second, "longest `time` by which a packet is delayed"),
		option.Seed(&cfg.seed, "random `seed` of the faults"),
	}
}

// validate checks constraints between options.
func (cfg *config) validate() error {
	const most = 5_000_000 // all are queued at the beginning, at about 150 bytes each
	if cfg.flows*cfg.messages > most {
		return fmt.Errorf("-messages is %d for -flows %d; it must be at most %d in all", cfg.messages, cfg.flows, most)
	}
	// The protocol has no congestion control, so the number of packets in flight must not exceed
	// the number with the defaults, or the buffers of the kernel overflow.
	cfg.window = min(cfg.window, max(1280/cfg.flows, 1))
	return nil
}
