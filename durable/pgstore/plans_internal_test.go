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

// TestPlans plans each statement with the settings of the store's transactions, for tables of
// different sizes, because a plan may be used when the table has grown. None of them reads the
// whole table.
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
	_, err = conn.Exec(ctx, "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(ctx, s.texts[settingsOfTransaction], false)
	require.NoError(t, err)
	requirePlans(t, s, conn.Conn(), "empty")
	const insert = `INSERT INTO plans.messages (part, id, state, at, enqueued, due, max_attempts, body)
		SELECT 1 + i % 8, 'm' || i, 1 + i % 4, i, 0, i, 1, '' FROM generate_series($1::int, $2::int) i`
	last := 0
	for _, n := range []int{1, 5, 100, 50_000} {
		_, err := conn.Exec(ctx, insert, last+1, n)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, `ANALYZE plans.messages`)
		require.NoError(t, err)
		last = n
		requirePlans(t, s, conn.Conn(), fmt.Sprintf("m%d_", n))
	}
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
		assert.NotRegexp(t, `Seq Scan on messages|Hash.*messages`, strings.Join(plan, "\n"), text)
		for i, line := range plan {
			if strings.Contains(line, "messages_pkey") && !strings.Contains(line, "Arbiter") {
				assert.Regexp(t, `Index Cond: .*\bid = `, plan[min(i+1, len(plan)-1)], "%s\n%s", strings.Join(plan, "\n"), text)
			}
		}
	}
	assert.Greater(t, explained, 20)
}
