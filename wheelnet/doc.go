// Package wheelnet keeps the deadlines of network connections on a timing wheel. A server that sets
// a deadline before each read and write pays 14 ns for the call instead of 113 ns with package net,
// and 25 ns instead of 178 ns to set a deadline and clear it. Of the processor time for a request
// that is 2 to 6%: about as much as deadlines cost in package net. Idle connections gain nothing
// that can be measured, because a wake-up costs a thousand times as much as the call. Each
// connection takes about 170 bytes more. docs/wheelnet.md has the figures and how to repeat them.
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
//   - A connection is not a *net.TCPConn, although it has the methods of one. NetConn returns the
//     connection inside. The wheel does not know of deadlines that are set on that one.
//   - If the connection inside is closed by itself, setting a deadline may return nil.
//
// # The wheel
//
// One wheel serves all connections of a process. Its Stop lets the deadlines that are pending pass
// in time, and the connections then use the deadlines of package net. Its Flush cuts no connection.
// An Executor that delays callbacks delays the cuts.
package wheelnet
