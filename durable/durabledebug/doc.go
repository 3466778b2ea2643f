// Package durabledebug serves a page that shows the durable queues of a process, and the same data
// as JSON:
//
//	queues := &durabledebug.Handler{}
//	err := queues.Add("orders", q)
//	http.Handle("/debug/queues/", queues)
//
// The page is embedded and loads nothing from other hosts. It shows pending messages by due time,
// messages in flight, dead letters, rates over time, lateness, consumers and partitions.
//
// # Exposure
//
// The page shows the ids of dead letters, their reasons, which are the errors of handlers, and the
// host names of consumers. It shows the headers of dead letters only if [Handler.Headers] is set,
// and never the bodies of messages. It changes nothing unless [Handler.Actions] is set. In that
// case visitors may replay and delete dead letters and pause queues. The handler has no
// authentication: serve it on a private address, or behind the authentication of your other debug
// pages.
//
// # Cost
//
// Without requests the handler has no goroutine and no timer. Requests query a queue at most twice
// a second and share the answer. A query makes two calls to the store per partition and two more,
// and up to one more per partition if the dead letters have changed. A hidden page sends no
// requests.
package durabledebug
