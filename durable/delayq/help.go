package main

// The help texts of the commands: what a command does, what happens to messages, and examples.

const rootHelp = `A delay queue holds messages until they are due and delivers each at least
once. A queue in a file or on Redis survives a crash.

The store is one of these URLs (-store, or the environment variable DELAYQ_STORE):
   file:delayq.db                                      a file; if another process has it open, delayq uses the
                                                       socket of that process (boltstore.Options.Socket)
   redis://user:password@localhost:6379/0              a Redis server; any number of processes
   redis-cluster://host:7000,host:7001                 a Redis Cluster
   redis-sentinel://host:26379,host:26380/mymaster     a Redis master by its Sentinels
   memory:                                             this process only, to try a command
The scheme rediss in place of redis uses TLS. Other users of the machine can read the command
line, so give passwords in DELAYQ_STORE.

A store holds several queues with different names (-queue, or DELAYQ_QUEUE). A new name makes a
new, empty queue.

Examples:
   delayq enqueue -id order-42 -body 'cancel it' -delay 30m
   delayq list
   delayq cancel order-42
   delayq watch
   delayq consume -exec 'cat; echo'
   delayq dead replay -all

Every command has its own help: delayq enqueue -help. Arguments that begin with a dash follow
"--".`

const enqueueHelp = `Prints the id of each message when the message is safe in the store. The
body is the text of -body, or all of stdin. A message whose id is already in the queue is
refused, unless -replace is given. A message that is being delivered is not replaced.

Examples:
   delayq enqueue -body 'remind me' -delay 10m
   delayq enqueue -id meeting-7 -at 2030-01-31T09:00:00+01:00 < invitation.json
   delayq enqueue -id meeting-7 -at 2030-01-31T10:00:00+01:00 -replace < invitation.json
   delayq enqueue -body 'remind me' -delay 10m -header customer=42 -header kind=reminder
   delayq enqueue -n 1000 -body test -delay 1d`

const takeHelp = `Prints the body of each message, and a newline unless the body ends with one;
with -json all fields of the message. Without -ack the messages stay in the queue: -keep, the
default, gives them back unchanged, and -nack gives them back as failed. A message is
acknowledged after it was printed. It is an error if no message comes in time.

Examples:
   delayq take
   delayq take -ack > message
   delayq take -n 100 -ack -wait 10s
   delayq take -nack -delay 5m`

const consumeHelp = `Runs the command by the shell, with the body on its stdin and these environment variables:
   DELAYQ_ID         the id
   DELAYQ_DUE        the due time
   DELAYQ_ATTEMPTS   the number of deliveries that have failed
   DELAYQ_CRASHES    the number of deliveries that have ended with their process
   DELAYQ_TOKEN      a number that rises with each delivery of the message

Exit code 0 acknowledges the message. Any other exit code is a failed attempt: the message comes
again after one second, then two, four and so on up to an hour. After its last attempt (see
enqueue -max-attempts) the message is a dead letter. No other consumer gets the message while the
command runs. If this process crashes, another consumer gets it after -visibility. A message may
come more than once, so the command must be idempotent.

The first Ctrl-C stops taking messages, gives back messages that have not begun, and waits for
the running commands. It waits up to a minute for a store that does not answer. A second Ctrl-C
ends the commands as well.

Examples:
   delayq consume -exec 'cat; echo'
   delayq consume -exec './deliver.sh "$DELAYQ_ID"' -concurrency 16
   delayq -store redis://localhost:6379/0 -queue mails consume -exec 'sendmail -t'`

const watchHelp = `The columns:
   scheduled    waiting messages, due ones included
   due          due messages that no consumer has claimed
   in flight    messages that a consumer has claimed ahead of time, or is delivering
   dead         dead letters
   next in      the time until the next message is due
   overdue      the time since the first waiting message was due; above a second, consumers are missing,
                or the queue is paused
   ...../s      events a second since the last look

On a terminal the table is redrawn. Otherwise each look is a line, or an object with -json.

Examples:
   delayq watch
   delayq watch -interval 5s -partitions
   delayq watch -n 1 -json`

const consumersHelp = `A consumer is listed until it has given no sign of life for a while, see the column
"expires". Its partitions are those of its last heartbeat. The times in brackets count from now on
the clock of this machine.

Examples:
   delayq consumers
   delayq -json consumers`

const pauseHelp = `No message of the queue begins any more, in any process, until delayq resume. Messages that are
being delivered go on. All else works as before: enqueue, cancel, reschedule, list. The store keeps
the pause.

Examples:
   delayq pause
   delayq -store redis://localhost:6379/0 -queue mails pause`

const resumeHelp = `Consumers deliver the messages that became due during the pause, as fast as they can.

Examples:
   delayq resume`

const healthHelp = `The exit code is 0 if the store answers for each partition, and if no server may lose or evict
messages. Otherwise it is 1, and stderr says what is wrong and what to do.

Examples:
   delayq health
   delayq -store redis://localhost:6379/0 -queue mails health`

const inspectHelp = `Times in brackets count from now on the clock of this machine, which may
differ from the clock of the store.

Examples:
   delayq inspect order-42
   delayq -json inspect order-42`

const listHelp = `Messages are listed partition by partition, and in each partition in the order
of their times. A message is in flight if a consumer has claimed it ahead of time or is
delivering it.

Examples:
   delayq list
   delayq list -state in-flight
   delayq -json list -state dead -n 0 > dead.json`

const cancelHelp = `Prints for each message whether it was cancelled, is being delivered, or is
not there. A cancelled message is never delivered. It is an error if not all messages were
cancelled.

With -header the command reads the whole queue and cancels the messages that have all the given
headers. It may miss messages that are enqueued, or come back from a consumer, while it runs. To
be sure, run it again.

Examples:
   delayq cancel order-42
   delayq cancel -header customer=42 -header kind=reminder
   delayq cancel order-42 order-43 -- -order-with-a-dash`

const rescheduleHelp = `The new delay counts from now, not from the old due time. A message that
is being delivered or has been delivered is not changed, and that is an error.

Examples:
   delayq reschedule order-42 -delay 1h
   delayq reschedule order-42 -delay 0s
   delayq reschedule order-42 -at 2030-01-31T09:00:00Z`

const deadHelp = `A message becomes a dead letter after its last attempt, or if its consumers
have crashed too often. It stays in the queue, and its id is taken, until it is replayed or
purged. Consumers drop the oldest dead letters beyond their bounds of age, number and size.
delayq consume keeps them for 30 days, up to 100,000 in each partition.

Examples:
   delayq dead list
   delayq dead replay order-42
   delayq dead replay -all -delay 10m
   delayq dead replay -reason 'connection refused' -since 6h -rate 50
   delayq dead purge order-42
   delayq dead purge -all
   delayq dead purge -until 7d -reason 'no such user'`

const auditHelp = `Looks for messages in no set, which no consumer would find, for members of
sets without a message, and for wrong sums. A deleted key leaves such faults. With -repair the
messages are scheduled again, the members are removed, and the sums are corrected. It is an error
if faults are left. The queue may be in use.

Examples:
   delayq audit
   delayq audit -repair`

const backupHelp = `Writes a consistent copy of a file store to a new file. If another process
has the file open, that process makes the copy, if it has a socket. An incomplete copy is
removed. To restore a copy, end all processes that use the store and put the copy in place of its
file.

Examples:
   delayq -store file:queue.db backup queue-2030-01-31.db`

const compactHelp = `Copies the file of a store to a new file without its free pages. The store
must not be in use. A file reuses its free pages, and never shrinks by itself.

Examples:
   delayq -store file:queue.db compact small.db && mv small.db queue.db`
