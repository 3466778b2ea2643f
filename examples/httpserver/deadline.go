package main

import (
	"context"
	"net/http"
	"time"
)

// withTimeout is WithTimeout of a timing wheel or of package context.
type withTimeout func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)

// deadline is middleware that answers 503 with the message if a request takes longer than d. The
// context of the request is done then, which also ends calls downstream. Compared with
// [http.TimeoutHandler]:
//
//   - The handler runs on the goroutine of the server. A second goroutine exists only after the
//     deadline.
//   - A handler may flush, stream and hijack. Up to [maxBuffered] bytes of an answer are buffered,
//     so that it can still become a 503. After more bytes or a flush the client has a part of the
//     answer, and the deadline cuts the connection: there is no other way to tell the client that
//     the rest is missing. A Write that is blocked by a client that does not read then fails.
//   - If a handler ignores its context, the client still gets the 503 at the deadline. The
//     connection closes when the handler returns, whereas http.TimeoutHandler frees the connection
//     and leaves the handler running.
//
// If all handlers obey their context and answer by themselves, limit, cancel and r.WithContext are
// enough.
//
// A Write after the deadline fails with [http.ErrHandlerTimeout]. The clock decides whether a
// handler was in time, not the order of goroutines: a handler that returns late gets the 503 even
// if the goroutine of the deadline is delayed on a busy machine.
func deadline(limit withTimeout, d time.Duration, message string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := limit(r.Context(), d)
		defer cancel()
		a := &answer{w: w, header: make(http.Header), message: message, closes: r.ProtoMajor == 1}
		stop := context.AfterFunc(ctx, func() { a.expire(ctx.Err()) })
		defer stop()
		defer a.abandon() // after a panic nothing must write to w
		next.ServeHTTP(a, r.WithContext(ctx))
		a.finish(overdue(ctx))
	})
}

// overdue reports whether the deadline of the context has passed. If the context is not done yet,
// it checks the clock.
func overdue(ctx context.Context) bool {
	switch ctx.Err() {
	case nil:
		t, ok := ctx.Deadline()
		return ok && !time.Now().Before(t)
	case context.DeadlineExceeded:
		return true
	default:
		return false // the client has disconnected
	}
}
