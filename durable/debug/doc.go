// Package durabledebug serves a page that shows the durable queues of a process, and the same as JSON
// for machines:
//
//	queues := &durabledebug.Handler{}
//	err := queues.Add("orders", q)
//	http.Handle("/debug/queues/", queues)
//
// The page has everything embedded: no build step, and nothing is fetched from elsewhere. It shows
// how many messages are pending and when they are due, what is in flight and dead, rates over time,
// lateness, consumers, partitions, and the first dead letters with their reasons.
//
// # Exposure
//
// Bodies of messages are never shown. The ids of dead letters and the reasons of their deaths, which
// are the errors of handlers, are. Their headers are shown with [Handler.Headers] only. The page
// changes nothing unless [Handler.Actions] is set; then a visitor may replay and purge dead letters and pause queues.
// The handler asks for no password: mount it on an address that is not public, or behind the
// authentication of your other debug pages.
//
// # Cost
//
// Without requests nothing runs. A request looks at a queue at most twice a second, and all requests
// share the answer. A look takes two calls of the store for each partition and three more, and up to
// one for each partition whenever the dead letters have changed. A page that is hidden sends no
// requests.
package durabledebug
