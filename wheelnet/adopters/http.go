package adopters

import (
	"net/http"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

// HTTPDeadline returns a handler that limits each request. The context of the request ends at the
// limit, reads of the body fail a grace later, and writes of the response another grace later. So a
// handler can still answer after its context has ended or a read has failed. With a listener of
// package wheelnet, the wheel keeps all three deadlines.
//
// The read deadline must be later than the context's, because net/http cancels the context when a
// read fails. The error of the context could then be context.Canceled.
func HTTPDeadline(tw *timingwheel.TimingWheel, limit, grace time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end := time.Now().Add(limit)
		ctx, cancel := tw.WithDeadline(r.Context(), end)
		defer cancel()
		control := http.NewResponseController(w)
		// Middleware that hides the connection leaves only the deadline of the context.
		_ = control.SetReadDeadline(end.Add(grace))
		_ = control.SetWriteDeadline(end.Add(2 * grace))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
