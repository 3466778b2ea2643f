// Package durabledebug serves a page that shows the durable queues in a process, and the same data
// as JSON:
//
//	queues := &durabledebug.Handler{}
//	err := queues.Add("orders", q)
//	http.Handle("/debug/queues/", queues)
//
// The page is embedded and loads nothing from other hosts. It shows pending messages by due time,
// recurring messages, dead letters, rates over time, lateness, consumers and partitions.
//
// # JSON
//
// The document has its version (schema), the names of all queues (queues), whether actions are
// enabled (actions), and the requested queue (queue), or null and an error. A queue has
//
//   - name, and two times: taken, on this process's clock, and now, on the store's clock;
//   - paused: at least one partition is paused;
//   - the counts and durations from [durable.Stats]: pending (Scheduled), due, overdue_ns,
//     in_flight, dead, dead_bytes, unreadable, lost, prefetched, running (Firing), unowned; and
//     counters, the increasing fields of [durable.Counts], by their names in snake case;
//   - bands: pending messages that are due more than from_ns and at most to_ns from now, where both
//     are 0 for due messages. Messages that are due in more than 292 years are in no band;
//   - lateness of this process, in the form of [wheeldebug.Lateness];
//   - consumers in all processes, in the form of [durable.Consumer];
//   - partitions by number, with pending, due, overdue_ns, in_flight and dead;
//   - dead_letters: at most 100, one partition after another, the oldest first;
//   - recurring: at most 100 recurring messages found by the last search: first those without due,
//     which crashes have stopped, then the others by due time. recurring_found is the number of
//     messages found, searched the number read, and searched_all is true if all were read.
//
// Durations are in nanoseconds and their names end in ns, times are RFC 3339, and all other numbers
// are counts. The parts are read one after another, so they are not an atomic snapshot. They are
// cached for half a second, or longer if reading them is slow. A field may be added without a new
// schema. Within one schema, no field is renamed, removed or given another meaning.
//
// # Exposure
//
// The page shows the ids of dead letters and recurring messages, their reasons, which are handlers'
// errors, and the host names of consumers. It shows headers only if [Handler.Headers] is set, and
// never the bodies of messages. It changes nothing unless [Handler.Actions] is set. In that case
// visitors may replay and delete dead letters and pause queues. The handler has no authentication:
// serve it on a private address, or behind the authentication of your other debug pages.
//
// # Cost
//
// Without requests the handler has no goroutine and no timer. Requests query a queue at most twice
// a second and share the answer. A query makes two calls to the store per partition and two more.
// For at most a hundredth of the time, queries also read messages: the first dead letters and, for
// up to a fifth of [Handler.Timeout], all messages, to find the recurring ones. A hidden page sends
// no requests.
package durabledebug
