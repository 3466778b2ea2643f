// Package wheelnet keeps the deadlines of network connections on a timing wheel. A server that sets
// a deadline before each read and write pays 14 ns for the call instead of 113 ns with package net,
// and 25 ns instead of 178 ns to set a deadline and clear it. Of the processor time for a request
// that is 2 to 6%: about as much as deadlines cost in package net. Idle connections gain nothing
// that can be measured, because a wake-up costs a thousand times as much as the call. Each
// connection takes about 170 bytes more. docs/wheelnet.md has the figures and how to repeat them.
//
//	tw, err := timingwheel.New(timingwheel.Options{})
//	l, err := net.Listen("tcp", ":8080")
//	http.Serve(wheelnet.Listener(l, tw), handler)
//
// A program uses the connections as before. Only the construction changes: [Listener] for servers,
// [Dialer] for clients, and [Conn] for a connection that exists.
//
// # Semantics
//
// Deadlines behave as net.Conn documents. A call that is under way when its deadline passes returns
// an error that matches [os.ErrDeadlineExceeded], is a [net.Error], and has Timeout true. A later
// deadline, or none, makes the connection usable again. All methods may be called at the same time.
//
// There are four differences from package net.
//
//   - A deadline passes up to one tick of the wheel late, and never early. A read that begins within
//     that tick, after its deadline, waits or returns data.
//   - If a deadline is set as a date on the wall clock, which is a time without a monotonic reading,
//     later steps of the wall clock do not move it. A time of time.Now with Add has a monotonic
//     reading.
//   - Setting a deadline that lies ahead, or none, may return nil although the connection was closed
//     by way of NetConn.
//   - [TimingWheel.Flush] cuts no connection.
//
// Stop of the wheel leaves the connections usable. Their deadlines then are those of the inner
// connections.
//
// If callbacks of the wheel run late, because of a custom [timingwheel.Executor] or MaxRunning,
// connections are cut late. An executor that drops a callback leaves a connection without deadlines.
//
// [TimingWheel.Flush]: https://pkg.go.dev/github.com/timingwheel-go/timingwheel#TimingWheel.Flush
package wheelnet
