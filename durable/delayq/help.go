package main

// The helps of the commands: what a command does, what becomes of messages, and examples.

const rootHelp = `A delay queue holds messages until they are due and delivers each at least once. It survives a crash,
as it lies in a file or on Redis.

The store is one of these URLs (-store, or the environment variable DELAYQ_STORE):
   file:delayq.db                                      a file; while another process has it open it is used through
                                                       the socket of that process (boltstore.Options.Socket)
   redis://user:password@localhost:6379/0              a Redis server; any number of processes
   redis-cluster://host:7000,host:7001                 a Redis Cluster
   redis-sentinel://host:26379,host:26380/mymaster     a Redis master by its Sentinels
   memory:                                             this process only, to try a command
rediss in place of redis uses TLS. A password is better kept in DELAYQ_STORE than on the command line.

A store holds several queues, which differ by their names (-queue, or DELAYQ_QUEUE). A name that is new makes a new,
empty queue.

Examples:
   delayq enqueue -id order-42 -body 'cancel it' -delay 30m
   delayq list
   delayq cancel order-42
   delayq watch
   delayq consume -exec 'cat; echo'
   delayq dead replay -all

Every command has its own help: delayq enqueue -help. Arguments that begin with a dash follow "--".`

const enqueueHelp = `Prints the id of each message when it is safe in the store. The body is what -body says, or
all of stdin. A message whose id is in the queue already is refused, unless -replace is given; so is one that is
being delivered.

Examples:
   delayq enqueue -body 'remind me' -delay 10m
   delayq enqueue -id meeting-7 -at 2030-01-31T09:00:00+01:00 < invitation.json
   delayq enqueue -id meeting-7 -at 2030-01-31T10:00:00+01:00 -replace < invitation.json
   delayq enqueue -body 'remind me' -delay 10m -header customer=42 -header kind=reminder
   delayq enqueue -n 1000 -body test -delay 1d`

const takeHelp = `Prints the body of each message, with the end of a line after it unless it has one; with -json
all that is known of it. Without -ack the messages stay in the queue: -keep, the default, gives them back as they
were, and -nack as failed. A message is acknowledged only after it was printed. If none comes in time that is an error.

Examples:
   delayq take
   delayq take -ack > message
   delayq take -n 100 -ack -wait 10s
   delayq take -nack -delay 5m`

const consumeHelp = `Runs the command by the shell, with the body on its stdin and these environment variables:
   DELAYQ_ID         the id
   DELAYQ_DUE        when it was due
   DELAYQ_ATTEMPTS   how many deliveries have failed before
   DELAYQ_CRASHES    how many have ended with their process
   DELAYQ_TOKEN      a number that rises with each delivery of the message

Exit code 0 acknowledges the message. Any other is a failed attempt: it is tried again after one second, then two, four and
so on up to an hour, until it has had its attempts (see enqueue -max-attempts) and is a dead letter. While
the command runs nobody else gets the message, however long it takes; if this process crashes others get it after -visibility.
A message may come more than once, so the command must be able to stand that.

The first Ctrl-C stops taking messages, gives back those that have not begun, and waits for the commands that run, and up to
a minute for a store that does not answer. A second one ends the commands as well.

Examples:
   delayq consume -exec 'cat; echo'
   delayq consume -exec './deliver.sh "$DELAYQ_ID"' -concurrency 16
   delayq -store redis://localhost:6379/0 -queue mails consume -exec 'sendmail -t'`

const watchHelp = `The columns:
   scheduled    messages that wait, due ones included
   due          those whose time has come, and that nobody has claimed
   in flight    claimed by a consumer ahead of time, or being delivered
   dead         dead letters
   next in      how long it takes until the next message is due
   overdue      how late the message is that has been due longest; more than a moment means that consumers are missing
   ...../s      what has happened since the last look

On a terminal the table is redrawn; otherwise each look is a line, with -json an object.

Examples:
   delayq watch
   delayq watch -interval 5s -partitions
   delayq watch -n 1 -json`

const inspectHelp = `Times in brackets are from now on the clock of this machine, which may differ from that of the store.

Examples:
   delayq inspect order-42
   delayq -json inspect order-42`

const listHelp = `Messages come partition by partition, and in each in the order of their times. In flight are those that
a consumer has claimed ahead of time, and those that are being delivered.

Examples:
   delayq list
   delayq list -state in-flight
   delayq -json list -state dead -n 0 > dead.json`

const cancelHelp = `Says of each message whether it was cancelled, is being delivered, or is not there. A message
that was cancelled is never delivered. It is an error if not all of them were cancelled.

With -header the command reads the whole queue and cancels the messages that have all headers that are given.
Messages that are enqueued meanwhile, or that come back from a consumer, may be missed: run the command again.

Examples:
   delayq cancel order-42
   delayq cancel -header customer=42 -header kind=reminder
   delayq cancel order-42 order-43 -- -order-with-a-dash`

const rescheduleHelp = `The new time counts from now, not from the old one. A message that is being delivered, or has been,
stays as it is; that is an error.

Examples:
   delayq reschedule order-42 -delay 1h
   delayq reschedule order-42 -delay 0s
   delayq reschedule order-42 -at 2030-01-31T09:00:00Z`

const deadHelp = `A message is a dead letter when it has had its attempts, or its consumers have crashed too often.
It stays in the queue, and its id is taken, until it is replayed or purged. Only consumers drop dead letters: those
that are older, or more, than their programs keep. delayq consume keeps them for 30 days, up to 100,000 in each partition.

Examples:
   delayq dead list
   delayq dead replay order-42
   delayq dead replay -all -delay 10m
   delayq dead replay -reason 'connection refused' -since 6h -rate 50
   delayq dead purge order-42
   delayq dead purge -all
   delayq dead purge -until 7d -reason 'no such user'`

const auditHelp = `Looks through all messages for those that are in no set, so that nobody would deliver them, and for
entries without a message, and compares sums with what is there. A key that somebody has deleted leaves such faults. With
-repair the former are scheduled again, the latter removed, and sums corrected. It is an error if faults are left. The queue may be in use meanwhile.

Examples:
   delayq audit
   delayq audit -repair`

const backupHelp = `Writes a copy of a file store, as of one moment, to a new file. The store may be in use: then the process that
has the file open makes the copy, if it has a socket. A copy that was not completed is removed. To restore it
end all processes that use the store and put the copy in place of its file.

Examples:
   delayq -store file:queue.db backup queue-2030-01-31.db`

const compactHelp = `Copies the file of a store to a new file without its free pages. The store must not be in use. A file never
shrinks by itself; pages that are free are used again.

Examples:
   delayq -store file:queue.db compact small.db && mv small.db queue.db`
