// Package durabledebug serves a page that shows the durable queues of a process, and the same as
// JSON for machines:
//
//	queues := &durabledebug.Handler{}
//	err := queues.Add("orders", q)
//	http.Handle("/debug/queues/", queues)
//
// All parts of the page are embedded, so it needs no build step and fetches nothing from other
// hosts. The page shows how many messages are pending and when they are due, messages in flight and
// dead letters, rates over time, lateness, consumers and partitions.
//
// # Exposure
//
// The page shows the ids of dead letters, the reasons of their deaths, which are the errors of
// handlers, and the host names of consumers. It shows the headers of dead letters only with
// [Handler.Headers], and never the bodies of messages. It changes nothing unless [Handler.Actions]
// is set: then visitors may replay and purge dead letters and pause queues. The handler has no
// authentication: mount it on an address that is not public, or behind the authentication of your
// other debug pages.
//
// # Cost
//
// Without requests the handler has no goroutine and no timer. Requests look at a queue at most
// twice a second and share the answer. A look takes two calls of the store for each partition and
// two more, and up to one for each partition if the dead letters have changed. A hidden page sends
// no requests.
package durabledebug
