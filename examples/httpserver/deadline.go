package main

import (
	"context"
	"net/http"
	"time"
)

// withTimeout makes contexts with a deadline: WithTimeout of a timing wheel, or that of package
// context.
type withTimeout func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)

// deadline is middleware that answers 503 with the message for every request that takes longer than
// d. The request's context ends then, so what the handler has called downstream with that context
// ends as well. It takes up where [http.TimeoutHandler] leaves off:
//
//   - The handler runs on the server's goroutine. A second one exists only where the deadline
//     passes.
//   - A handler may flush, stream and hijack. Up to [maxHeld] bytes of an answer are held back, so
//     that it can still become a 503. Once more than that was written, or the handler has flushed,
//     the client has a part of it, and the deadline cuts the connection, the only way to tell that
//     client that the rest is missing. A Write that waits for a client that does not read fails
//     then.
//   - A handler that ignores its context still cannot keep the client waiting: the 503 goes out at
//     the deadline. Its connection is then of no further use and closes when the handler returns,
//     whereas http.TimeoutHandler lets go of the connection and leaves the handler behind.
//
// Where all handlers obey their context and answer for themselves, none of this is needed: limit,
// cancel and r.WithContext will do.
//
// What the handler writes after the deadline has come fails with [http.ErrHandlerTimeout]. The
// clock decides whether a handler was in time, and not who is first: one that returns late gets the
// 503 also where the machine is so busy that the deadline's own goroutine is later still.
func deadline(limit withTimeout, d time.Duration, message string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := limit(r.Context(), d)
		defer cancel()
		a := &answer{w: w, header: make(http.Header), message: message, closes: r.ProtoMajor == 1}
		stop := context.AfterFunc(ctx, func() { a.expire(ctx.Err()) })
		defer stop()
		defer a.abandon() // where the handler panics, nothing must write to w any more
		next.ServeHTTP(a, r.WithContext(ctx))
		a.finish(overdue(ctx))
	})
}

// overdue reports whether the deadline of the context has passed, by the clock if nobody has said
// so yet.
func overdue(ctx context.Context) bool {
	switch ctx.Err() {
	case nil:
		t, ok := ctx.Deadline()
		return ok && !time.Now().Before(t)
	case context.DeadlineExceeded:
		return true
	default:
		return false // the client has gone
	}
}
