-- The first version of the schema. {schema} is replaced by the quoted name.
--
-- Times are milliseconds since 1970, and durations of limits are nanoseconds, as in package driver.

CREATE TABLE {schema}.queues (
	id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	name text COLLATE "C" NOT NULL UNIQUE,
	partitions int NOT NULL,
	max_body bigint NOT NULL,
	max_attempts bigint NOT NULL,
	dead_limit bigint NOT NULL,
	dead_bytes bigint NOT NULL,
	dead_age bigint NOT NULL,
	deleting boolean NOT NULL DEFAULT false
);

-- Rows change rarely: by a pause, and when calls are forgotten.
CREATE TABLE {schema}.partitions (
	id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	queue int NOT NULL,
	index int NOT NULL,
	paused boolean NOT NULL DEFAULT false,
	forgotten bigint NOT NULL DEFAULT 0, -- see driver.Call
	UNIQUE (queue, index)
);

-- Each message has one row. at is the time by which the messages of a state are ordered: the due
-- time, the end of the lease, or the death.
CREATE TABLE {schema}.messages (
	part int NOT NULL, -- partitions.id
	id text COLLATE "C" NOT NULL,
	state smallint NOT NULL, -- 1 scheduled, 2 leased, 3 firing, 4 dead
	at bigint NOT NULL,
	enqueued bigint NOT NULL,
	due bigint NOT NULL,
	token bigint NOT NULL DEFAULT 0,
	planned bigint NOT NULL DEFAULT 0,
	max_attempts int NOT NULL,
	attempts int NOT NULL DEFAULT 0,
	crashes int NOT NULL DEFAULT 0,
	postponed int NOT NULL DEFAULT 0,
	last smallint NOT NULL DEFAULT 0, -- the transition that ended the last lease, if a repetition of it is recognized
	repeat text NOT NULL DEFAULT '',
	reason text NOT NULL DEFAULT '',
	process text NOT NULL DEFAULT '', -- that has begun the message, if it is firing
	body bytea NOT NULL,
	PRIMARY KEY (part, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.1);
-- Plans are used again when the table has grown. With these rows, which are no messages, the planner
-- never takes the table for small, for which it would scan all ids instead of searching for some.
INSERT INTO {schema}.messages (part, id, state, at, enqueued, due, max_attempts, body)
SELECT 0, i::text, 5, 0, 0, 0, 0, '' FROM generate_series(1, 10000) i;
CREATE INDEX messages_scheduled ON {schema}.messages (part, at, id) WHERE state = 1;
CREATE INDEX messages_leased ON {schema}.messages (part, at, id) WHERE state IN (2, 3);
CREATE INDEX messages_dead ON {schema}.messages (part, at, id) WHERE state = 4;
ANALYZE {schema}.messages;

-- Each transaction that changes counts of a partition adds a row, so that no transaction waits for
-- another one. Claims move the rows to the table claims.
CREATE TABLE {schema}.counts (
	part int NOT NULL,
	scheduled bigint NOT NULL DEFAULT 0,
	in_flight bigint NOT NULL DEFAULT 0,
	dead bigint NOT NULL DEFAULT 0,
	dead_body_bytes bigint NOT NULL DEFAULT 0,
	enqueued bigint NOT NULL DEFAULT 0,
	acked bigint NOT NULL DEFAULT 0,
	retried bigint NOT NULL DEFAULT 0,
	buried bigint NOT NULL DEFAULT 0,
	cancelled bigint NOT NULL DEFAULT 0,
	crashed bigint NOT NULL DEFAULT 0,
	trimmed bigint NOT NULL DEFAULT 0,
	expired bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX counts_part ON {schema}.counts (part);

-- What the claims of a partition remember, and the sums of the counts that they have moved here from
-- the table counts. Transactions that enqueue read the row and never lock it.
CREATE TABLE {schema}.claims (
	LIKE {schema}.counts INCLUDING DEFAULTS,
	token bigint NOT NULL DEFAULT 0,
	next bigint NOT NULL DEFAULT 0, -- due time of the first message that the last claim has left, 0: none
	consumers text NOT NULL DEFAULT '',
	PRIMARY KEY (part)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

-- What each caller has called last: see driver.Call.
CREATE TABLE {schema}.calls (
	part int NOT NULL,
	caller text COLLATE "C" NOT NULL,
	seq bigint NOT NULL,
	not_after bigint NOT NULL,
	statuses text NOT NULL,
	PRIMARY KEY (part, caller)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.members (
	queue int NOT NULL,
	name text COLLATE "C" NOT NULL,
	seen bigint NOT NULL,
	until bigint NOT NULL,
	info text NOT NULL, -- the JSON of a driver.Member
	PRIMARY KEY (queue, name)
) WITH (fillfactor = 50);
