// Package wheelnet keeps the deadlines of network connections on a timing wheel. Setting a later
// deadline takes 17 ns instead of 83 ns with package net, and 8 ns instead of 42 ns with two
// goroutines. Setting a deadline and clearing it takes 22 ns instead of 111 ns. A server that sets
// deadlines for each request saves 2 to 6% of its processor time. An echo server needs 6.69 µs
// instead of 6.93 µs for a request, and 6.71 µs without deadlines. A net/http server needs 13.10 µs
// instead of 13.32 µs, and 12.56 µs without. A fasthttp server needs 7.97 µs instead of 8.46 µs, and
// 7.71 µs without. Idle connections gain nothing that can be measured, because a wake-up costs about
// 30 µs. Each connection takes about 175 bytes more. docs/wheelnet.md says how to repeat the
// measurement.
//
// [Listener] is for servers, [Dialer] for clients, and [Conn] for a connection that exists. The
// program uses the connections as before:
//
//	tw, err := timingwheel.New(timingwheel.Options{})
//	...
//	err = server.Serve(wheelnet.Listener(l, tw)) // an http.Server
//
// # Semantics
//
// Deadlines behave as net.Conn documents. A call that is under way when its deadline passes returns
// an error that matches [os.ErrDeadlineExceeded], is a [net.Error], and has Timeout true. A later
// deadline, or none, makes the connection usable again. All methods may be called at the same time.
//
// There are differences from package net:
//
//   - A deadline passes up to one tick of the wheel late, and never early. A call that begins within
//     this tick, after its deadline, waits or succeeds.
//   - If several goroutines call SetDeadline at once, the read deadline may be that of one call and
//     the write deadline that of another.
//   - A connection is not a *net.TCPConn, although it has the methods of one. NetConn returns the
//     connection inside. The wheel does not know of deadlines that are set on that one.
//   - If the connection inside is closed by itself, setting a deadline that lies ahead, or none, may
//     return nil.
//
// # The wheel
//
// One wheel serves all connections of a process. Its Stop lets the deadlines that are pending pass
// in time, and the connections then use the deadlines of package net. Its Flush cuts no connection.
//
// If callbacks of the wheel run late, because of a custom [timingwheel.Executor] or MaxRunning,
// connections are cut late. An executor that drops a callback leaves a connection without deadlines.
package wheelnet
