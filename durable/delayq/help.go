package main

// The help texts of the commands: what a command does, what happens to messages, and examples.

const rootHelp = `A delay queue holds messages until they are due and delivers each at least
once. A queue in a directory or on Redis survives a crash.

The store is one of these URLs (-store, or the environment variable DELAYQ_STORE):
   dir:delayq.d                                        a directory; one process consumes, and others do everything
                                                       else through its socket (pebblestore.Options.Socket)
   redis://user:password@localhost:6379/0              a Redis server; any number of processes
   redis-cluster://host:7000,host:7001                 a Redis Cluster
   redis-sentinel://host:26379,host:26380/mymaster     a Redis master behind Sentinel
   memory:                                             the memory of this process, to try a command
The scheme rediss instead of redis uses TLS. Other users of the machine can read the command line,
so pass passwords in DELAYQ_STORE.

A store holds several queues with different names (-queue, or DELAYQ_QUEUE). The commands enqueue,
consume, take and watch create a queue with a new name.

Examples:
   delayq enqueue -id order-42 -body 'cancel it' -delay 30m
   delayq list
   delayq cancel order-42
   delayq watch
   delayq consume -exec 'cat; echo'
   delayq dead replay -all

Every command has its own help: delayq enqueue -help. Arguments that begin with a dash follow
"--".`

const enqueueHelp = `Prints the id of each message once the store has accepted it. The body is the text of -body, or all
of stdin. A message whose id is already in the queue is rejected, unless -replace is given. A
message that is being delivered is not replaced.

Examples:
   delayq enqueue -body 'remind me' -delay 10m -expire-at 2030-01-31T09:00:00Z
   delayq enqueue -id meeting-7 -at 2030-01-31T09:00:00+01:00 < invitation.json
   delayq enqueue -id meeting-7 -at 2030-01-31T10:00:00+01:00 -replace < invitation.json
   delayq enqueue -body 'remind me' -delay 10m -header customer=42 -header kind=reminder
   delayq enqueue -n 1000 -body test -delay 1d`

const takeHelp = `Prints the body of each message, and a newline unless the body ends with one; with -json all fields
of the message. Without -ack the messages stay in the queue: -keep, the default, releases them
unchanged, and -nack releases them as failed: they are due again after -delay or, without it, after
the delay of consume. A message is acknowledged after it was printed. The command fails if no
message is due in time.

Examples:
   delayq take
   delayq take -ack > message
   delayq take -nack -delay 5m`

const consumeHelp = `Runs the command in the shell, with the body on its stdin and these environment variables:
   DELAYQ_ID         the id
   DELAYQ_DUE        the due time
   DELAYQ_EXPIRE_AT  the time after which the message is not delivered; empty if it does not expire
   DELAYQ_HEADERS    the headers as a JSON object
   DELAYQ_HEADER_... each header, such as DELAYQ_HEADER_USER_ID for user-id: letters in upper case, digits, and _ for
                     other bytes; of several, the last one in the order of the keys; none for a value with a NUL byte
   DELAYQ_ATTEMPTS   the number of failed deliveries
   DELAYQ_CRASHES    the number of deliveries that ended because their process crashed
   DELAYQ_TOKEN      a number that rises with each delivery of the message
DELAYQ_STORE is not passed on, because it may have a password.

Exit code 0 acknowledges the message. Any other exit code is a failed attempt: the message is
delivered again after one second, then two, four and so on up to an hour. After its last attempt
(see enqueue -max-attempts) the message is a dead letter. A command that cannot be started ends
consume, and counts no attempt. No other consumer gets the message while the command runs. If this
process crashes, another consumer gets the message after -visibility. A message may be delivered
more than once, so the command must be idempotent.

After the first Ctrl-C, consume takes no more messages, releases the messages that have not begun,
and waits for the running commands. If one of them fails then, for example because a supervisor
signals all processes, no attempt is counted. A store that does not answer delays the end by up to a
minute. A second Ctrl-C also ends the commands.

Examples:
   delayq consume -exec 'cat; echo'
   delayq consume -exec './deliver.sh "$DELAYQ_ID"' -concurrency 16
   delayq -store redis://localhost:6379/0 -queue mails consume -exec 'sendmail -t'`

const watchHelp = `The columns:
   scheduled    waiting messages, including due ones
   due          due messages that no consumer has claimed
   in flight    messages that a consumer has claimed ahead of time, or is delivering
   dead         dead letters
   next in      the time until the next message is due
   overdue      the time since the first waiting message was due; above a second, there are too few
                consumers, or the queue is paused
   ...../s      events per second since the previous update

On a terminal the table is redrawn. Otherwise each update is a line, or an object with -json.

Of a directory that no process has open, watch shows a copy, which does not change.

Examples:
   delayq watch
   delayq watch -interval 5s -partitions`

const consumersHelp = `A consumer is listed until the time in the column "expires", which each heartbeat of the consumer
moves. Its partitions are those of its last heartbeat. The durations in brackets are relative to the
clock of this machine.

Examples:
   delayq consumers`

const pauseHelp = `No message of the queue begins, in any process, until delayq resume. Deliveries under way continue.
All other commands work as before: enqueue, cancel, reschedule, list. The pause survives a restart
of all processes.

Examples:
   delayq pause`

const resumeHelp = `Consumers deliver the messages that became due during the pause, as fast as they can.

Examples:
   delayq resume`

const healthHelp = `The exit code is 0 if the store answers for each partition, and if no server may lose or evict
messages. Otherwise the exit code is 1, and stderr has the fault and the remedy.

Examples:
   delayq health`

const inspectHelp = `The durations in brackets are relative to the clock of this machine, which may differ from the clock
of the store.

Examples:
   delayq inspect order-42`

const listHelp = `Messages are listed partition by partition, and in each partition in the order of their times. A
message is in flight if a consumer has claimed it ahead of time or is delivering it.

Examples:
   delayq list
   delayq -json list -state dead -n 0 > dead.json`

const queuesHelp = `Prints the names of the queues. A queue that has consumers is deleted only with -force. Consumers of a
deleted queue end with an error. If delete is interrupted, run it again.

Examples:
   delayq queues
   delayq -store redis://localhost:6379 queues delete mails`

const cancelHelp = `Prints for each message whether it was cancelled, is being delivered, or was not found. A cancelled
message is never delivered. The command fails unless all messages were cancelled.

With -header the command reads the whole queue and cancels the messages that have all the given
headers, and with -all all messages. It may miss messages that are enqueued, or released by a consumer, while it runs. To be
sure, run it again.

Examples:
   delayq cancel order-42
   delayq cancel -header customer=42 -header kind=reminder
   delayq cancel -all
   delayq cancel order-42 order-43 -- -order-with-a-dash`

const rescheduleHelp = `The new delay counts from now, not from the old due time. The command fails if the message is being
delivered or has been delivered.

Examples:
   delayq reschedule order-42 -delay 1h
   delayq reschedule order-42 -at 2030-01-31T09:00:00Z`

const deadHelp = `A message becomes a dead letter after its last attempt, or if its consumers have crashed too often.
It stays in the queue, and its id stays in use, until it is replayed or purged. Consumers drop the
oldest dead letters beyond their limits of age, number and size. delayq consume keeps dead letters
for 30 days, up to 100,000 in each partition.

Examples:
   delayq dead list
   delayq dead replay order-42
   delayq dead replay -reason 'connection refused' -since 6h -rate 50
   delayq dead purge order-42
   delayq dead purge -until 7d -reason 'no such user'`

const auditHelp = `Looks for messages in no set, which no consumer would find, for members of sets without a message,
and for wrong sums. A deleted key leaves such faults. With -repair the messages are scheduled again,
the members are removed, and the sums are corrected. The command fails if faults are left. The queue
may be in use. Of a directory, the command reads a copy and repairs nothing; an error names the file
that is damaged.

Examples:
   delayq audit
   delayq audit -repair`

const backupHelp = `Writes a consistent copy of a directory to a new tar file, or to stdout for the name -. If another
process has the directory open with a socket, that process makes the copy. A backup ends after an
hour. An incomplete file is removed. To restore a backup, extract it into a new directory, end all
processes that use the store, and replace its directory.

Examples:
   delayq -store dir:queue backup queue-2030-01-31.tar
   delayq -store dir:queue backup - | gzip > queue.tar.gz
   mkdir restored && tar -xf queue-2030-01-31.tar -C restored`
