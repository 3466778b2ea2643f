package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
)

// onPostgres returns a tester on an empty database.
func onPostgres(t *testing.T) tester {
	t.Helper()
	t.Parallel()
	return tester{t, pgtest.Shared(t).Database(t)}
}

// with returns a tester on the same database with another value of a parameter.
func (d tester) with(parameter, value string) tester {
	d.t.Helper()
	u, err := url.Parse(d.store)
	require.NoError(d.t, err)
	q := u.Query()
	q.Set(parameter, value)
	u.RawQuery = q.Encode()
	return tester{d.t, u.String()}
}

func TestMigrateSaysWhatItDid(t *testing.T) {
	d := onPostgres(t)
	assert.Equal(t, "schema timingwheel is migrated\n", d.ok("migrate"))
	d.store = strings.Replace(d.store, "postgres:", "PostgreSQL:", 1)
	assert.Equal(t, "schema timingwheel was up to date\n", d.ok("migrate"))
	jobs := d.with("schema", "jobs")
	assert.JSONEq(t, `{"schema":"jobs","migrated":true}`, jobs.ok("-json", "migrate"))
	assert.JSONEq(t, `{"schema":"jobs","migrated":false}`, jobs.ok("-json", "migrate"))
	jobs.ok("enqueue", "-id", "a", "-body", "x")
	assert.Equal(t, "schema jobs was up to date\n", jobs.ok("migrate"))
	assert.Equal(t, "scheduled", jobs.message("a").State, "a migration keeps the messages")
	assert.Empty(t, d.ok("queues"), "the schemas are separate")
	require.ErrorIs(t, d.fails([]string{"migrate", "extra"}, `"extra"`), durable.ErrInvalid)
}

func TestCommandsBeforeMigrateNameIt(t *testing.T) {
	d := onPostgres(t)
	for _, args := range []string{
		"enqueue -body x", "take", "consume -exec true", "watch", "inspect a", "list", "cancel a", "cancel -all", "reschedule a -delay 1s",
		"dead list", "dead replay -all", "dead delete a", "consumers", "pause", "resume", "health", "audit",
		"queues", "queues delete a", "queues delete -force a", "queues set a",
	} {
		require.ErrorIs(t, d.fails(strings.Fields(args), "run delayq migrate"), durable.ErrVersion, args)
	}
	d.ok("migrate")
	d.ok("enqueue", "-body", "x")
	require.ErrorIs(t, d.with("schema", "other").fails([]string{"list"}, `"other"`, "run delayq migrate"), durable.ErrVersion)
}

func TestMigrateNeedsPostgres(t *testing.T) {
	d := onDirectory(t)
	d.fails([]string{"migrate"}, d.store, "it must be postgres://")
	d.ok("enqueue", "-body", "x")
	d.fails([]string{"migrate"}, d.store, "it must be postgres://")
	d.store = "memory:"
	d.fails([]string{"migrate"}, `"memory:"; it must be postgres://`)
	d.store = "redis://me:secret@host"
	assert.NotContains(t, d.fails([]string{"migrate"}, `"redis:…"; it must be postgres://`).Error(), "secret")
	d.store = "postgres://me:secret@host/db"
	assert.NotContains(t, d.fails([]string{"backup", "-"}, `"postgres:…"; it must be dir:PATH`).Error(), "secret")
}

func TestCommandsWorkOnPostgres(t *testing.T) {
	d := onPostgres(t)
	d.ok("migrate")
	d.ok("-partitions", "2", "enqueue", "-id", "a", "-n", "4", "-body", "x", "-delay", "1h", "-header", "customer=42", "-max-attempts", "1")
	assert.Equal(t, "default\n", d.ok("queues"))
	assert.Contains(t, d.ok("list"), "a-4")
	assert.Equal(t, "a-1: rescheduled\n", d.ok("reschedule", "a-1", "-delay", "0s"))
	assert.Equal(t, "a-2: cancelled\n", d.ok("cancel", "a-2"))
	assert.Equal(t, "queue default is paused\n", d.ok("pause"))
	assert.True(t, d.counts().Paused)
	d.fails([]string{"take", "-wait", "100ms"}, "no message was due")
	d.ok("resume")
	assert.Equal(t, "x\n", d.ok("take", "-wait", "1m", "-nack"))
	assert.Contains(t, d.ok("dead", "list"), "a-1")
	assert.Equal(t, "a-1: replayed\n", d.ok("dead", "replay", "a-1"))
	assert.Equal(t, "x\n", d.ok("take", "-wait", "1m", "-ack"))
	assert.Equal(t, "2 messages cancelled\n", d.ok("cancel", "-header", "customer=42"))
	c := d.counts()
	assert.Zero(t, c.Scheduled+c.InFlight+c.Dead)
	assert.EqualValues(t, 1, c.Acked)
	d.ok("consumers")
	assert.Contains(t, d.ok("queues", "set", "default", "-dead-age", "7d"), "7d")
	assert.Equal(t, "queue default is deleted\n", d.ok("queues", "delete", "default"))
	require.ErrorIs(t, d.fails([]string{"list"}, "Check -queue"), durable.ErrNoQueue)
	d.ok("watch", "-n", "1")
	assert.Equal(t, "default\n", d.ok("queues"), "on a server watch creates the queue")
}

func TestAuditOfPostgresNamesTheStoresThatHaveOne(t *testing.T) {
	d := onPostgres(t)
	d.ok("migrate")
	d.ok("enqueue", "-body", "x")
	for _, args := range [][]string{{"audit"}, {"audit", "-repair"}, {"check"}} {
		d.fails(args, `the store of queue "default" has no audit`, "Directories and Redis have an audit; delayq health checks any store")
	}
}

func TestWrongURLsOfPostgres(t *testing.T) {
	d := onPostgres(t)
	d.ok("migrate")
	u, err := url.Parse(d.store)
	require.NoError(t, err)
	u.User = url.UserPassword("postgres", "hush")
	right := u.String()
	for _, args := range [][]string{{"list"}, {"queues"}, {"migrate"}} {
		fails := func(store string, words ...string) error {
			err := tester{t, store}.fails(args, words...)
			assert.NotContains(t, err.Error(), "hush")
			return err
		}
		require.ErrorIs(t, fails(strings.Replace(right, u.Host, "127.0.0.1:1", 1), "127.0.0.1:1"), durable.ErrUnavailable)
		fails(strings.Replace(right, u.Path, "/none", 1), `"none"`, "does not exist")
		fails(strings.Replace(right, "postgres:hush", "stranger:hush", 1), `"stranger"`)
		fails(tester{t, right}.with("nonsense", "1").store, `"nonsense"`)
		require.ErrorIs(t, fails(tester{t, right}.with("schema", "a-b").store, `"a-b"`, "letters"), durable.ErrInvalid)
		require.ErrorIs(t, fails(tester{t, right}.with("sslmode", "perhaps").store, "?sslmode=require"), durable.ErrInvalid)
	}
}

// Health rejects a server that may lose messages, although other commands accept it.
func TestHealthOfPostgres(t *testing.T) {
	d := onPostgres(t) // whose server omits fsync
	d.ok("migrate")
	d.ok("enqueue", "-body", "x")
	require.ErrorIs(t, d.fails([]string{"health"}, "fsync off"), durable.ErrUnsafe)
	d.store = pgtest.Start(t, pgtest.Options{Durable: true}).URL()
	d.ok("migrate")
	d.ok("enqueue", "-body", "x")
	assert.Equal(t, "queue default is healthy\n", d.ok("health"))
}

// A server that does not answer fails commands that have no limit of their own.
func TestFrozenPostgresIsReported(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	d := tester{t, server.URL()}
	d.ok("migrate")
	server.Pause()
	defer server.Continue()
	for _, args := range [][]string{{"queues"}, {"migrate"}} {
		require.ErrorIs(t, d.fails(args), durable.ErrUnavailable)
	}
}
