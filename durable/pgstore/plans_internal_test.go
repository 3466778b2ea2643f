package pgstore

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
)

var parameter = regexp.MustCompile(`\$(\d+)(?:::(\w+(?:\[\])?))?`)

// TestPlans plans each statement for an empty table, because such a plan may be used when the table
// has grown, and for one of 50,000 messages. None of them reads the whole table.
func TestPlans(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, pgtest.Shared(t).URL())
	require.NoError(t, err)
	defer pool.Close()
	options := Options{Schema: "plans"}
	require.NoError(t, Migrate(ctx, pool, options))
	defer func() { _, _ = pool.Exec(context.WithoutCancel(ctx), `DROP SCHEMA plans CASCADE`) }()
	s, err := New(pool, options)
	require.NoError(t, err)
	defer s.Close()
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, setting := range []string{"plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_hashjoin = off", "enable_mergejoin = off"} {
		_, err = conn.Exec(ctx, "SET "+setting) // as settingsOfTransaction
		require.NoError(t, err)
	}
	requirePlans(t, s, conn.Conn(), "empty")
	for _, text := range []string{
		`INSERT INTO plans.messages (part, id, state, at, enqueued, due, max_attempts, body)
			SELECT i % 8, 'm' || i, 1 + i % 4, i, 0, i, 1, '' FROM generate_series(1, 50000) i`,
		`ANALYZE plans.messages`,
	} {
		_, err := conn.Exec(ctx, text)
		require.NoError(t, err)
	}
	requirePlans(t, s, conn.Conn(), "full")
}

// requirePlans requires that no statement scans the table of messages, and that those which use the
// index of ids search for the id.
func requirePlans(t *testing.T, s *Store, conn *pgx.Conn, table string) {
	t.Helper()
	ctx := t.Context()
	explained := 0
	for i, text := range append(s.texts, s.single...) {
		if !strings.Contains(text, ".messages") || strings.Contains(text, "DELETE FROM") && strings.Contains(text, "partitions") {
			continue // the deletion of a queue may read all
		}
		most, name := 0, fmt.Sprintf("%s%d", table, i)
		for _, match := range parameter.FindAllStringSubmatch(text, -1) {
			n := 0
			_, err := fmt.Sscan(match[1], &n)
			require.NoError(t, err)
			most = max(most, n)
		}
		_, err := conn.Exec(ctx, "PREPARE "+name+" AS "+text)
		require.NoError(t, err, text)
		nulls := strings.TrimSuffix(strings.Repeat("NULL, ", most), ", ")
		rows, err := conn.Query(ctx, "EXPLAIN EXECUTE "+name+"("+nulls+")")
		require.NoError(t, err)
		var plan []string
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			plan = append(plan, line)
		}
		require.NoError(t, rows.Err())
		explained++
		assert.NotRegexp(t, `Seq Scan on messages|Hash.*messages|messages_pkey.*\n *Index Cond: \(part = [^()]*\)$`, strings.Join(plan, "\n"), text)
	}
	assert.Greater(t, explained, 20)
}
