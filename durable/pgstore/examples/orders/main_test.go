package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/internal/pgtest"
	"github.com/timingwheel-go/timingwheel/durable/internal/redistest/proctest"
)

// TestMain runs the program if the environment variable is set. Leases are short, so that orders
// whose process was killed in the meantime are soon cancelled.
func TestMain(m *testing.M) {
	if os.Getenv("ORDERS_POSTGRES") != "" {
		consumer = durable.ConsumerOptions{Visibility: 300 * time.Millisecond, Fallback: 500 * time.Millisecond, MaxCrashes: 1000}
		main()
		return
	}
	os.Exit(m.Run())
}

// shop is the database of the program, and its process.
type shop struct {
	t    *testing.T
	dir  string        // of the output
	pool *pgxpool.Pool // of the test
	url  string        // of the database
	runs int
	log  string // file of the last run
	cmd  *exec.Cmd
	proc *proctest.Process

	addr     atomic.Pointer[string] // of the last run that was ready
	began    time.Time              // of the last run
	duration time.Duration          // of the last start
	answers  atomic.Int64           // to requests
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, dir: t.TempDir(), url: pgtest.Start(t, pgtest.Options{Durable: true}).Database(t)}
	var err error
	s.pool, err = pgxpool.New(t.Context(), s.url+"&application_name=test")
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	return s
}

// start starts the program with a timeout of unpaid orders. Its transactions are serializable, so
// some of them fail and are repeated.
func (s *shop) start(timeout time.Duration) {
	s.t.Helper()
	s.runs++
	s.log = filepath.Join(s.dir, strconv.Itoa(s.runs))
	s.cmd = exec.Command(os.Args[0], "-listen", "localhost:0", "-timeout", timeout.String(),
		"-database", s.url+"&application_name=orders&default_transaction_isolation=serializable")
	s.cmd.Env = append(os.Environ(), "ORDERS_POSTGRES=1")
	s.began = time.Now()
	var err error
	s.proc, err = proctest.Start(s.cmd, s.log, os.Kill)
	require.NoError(s.t, err)
}

// await waits until the program listens.
func (s *shop) await() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		require.False(s.t, s.proc.Ended(), "%s", s.output())
		_, line, found := strings.Cut(s.output(), "listening on ")
		addr, _, whole := strings.Cut(line, "\n")
		if found && whole {
			s.addr.Store(&addr)
		}
		return found && whole
	}, proctest.Timeout, time.Millisecond)
	s.duration = time.Since(s.began)
}

// work waits until the program has answered some requests, and possibly works on others.
func (s *shop) work() {
	s.t.Helper()
	next := s.answers.Load() + rand.Int64N(20)
	require.Eventually(s.t, func() bool { return s.answers.Load() >= next || s.t.Failed() }, proctest.Timeout, time.Millisecond, "%s", s.output())
	time.Sleep(rand.N(10 * time.Millisecond))
}

func (s *shop) output() string {
	text, err := os.ReadFile(s.log)
	require.NoError(s.t, err)
	return string(text)
}

// kill kills the program. It must be running.
func (s *shop) kill() {
	s.t.Helper()
	require.False(s.t, s.proc.Ended(), "%s", s.output())
	require.NoError(s.t, s.proc.End(os.Kill))
}

// exec runs a statement.
func (s *shop) exec(text string) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), text)
	require.NoError(s.t, err)
}

// rows returns the rows of a query with one column.
func (s *shop) rows(query string) []string {
	s.t.Helper()
	rows, _ := s.pool.Query(s.t.Context(), query) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	assert.NoError(s.t, err)
	return list
}

// check checks that each unpaid order has a timeout, and that no other order has one.
func (s *shop) check() {
	s.t.Helper()
	assert.Empty(s.t, s.rows(`
SELECT format('order %s %s, message %s in state %s', o.id, o.state, m.id, m.state)
FROM orders o FULL JOIN (SELECT * FROM timingwheel.messages WHERE part > 0) m ON m.id = o.id COLLATE "C"
WHERE o.id IS NULL OR (o.state = 'unpaid') <> (m.id IS NOT NULL) OR m.state = 4`))
}

var client = http.Client{Timeout: 15 * time.Second}

// call makes a request until the program answers it, or the test has failed.
func (s *shop) call(method, path string) (status int, body string) {
	for end := time.Now().Add(proctest.Timeout); !s.t.Failed(); time.Sleep(20 * time.Millisecond) {
		assert.True(s.t, time.Now().Before(end), "%s %s is not answered", method, path)
		request, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+*s.addr.Load()+path, nil)
		if !assert.NoError(s.t, err) {
			break
		}
		response, err := client.Do(request)
		if err != nil { // it was killed
			continue
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		s.answers.Add(1)
		if err == nil && response.StatusCode != http.StatusServiceUnavailable {
			return response.StatusCode, strings.TrimSpace(string(text))
		}
	}
	return 0, ""
}

// customer places orders until over is set. It pays some of them, most of them about when they
// expire, and counts the results.
func (s *shop) customer(name int, over *atomic.Bool, results *results) {
	for i := 0; !over.Load() && !s.t.Failed(); i++ {
		path := fmt.Sprintf("/orders/%d-%d", name, i)
		status, state := s.call(http.MethodPost, path)
		results.add("placed", path)
		assert.Equal(s.t, http.StatusOK, status)
		assert.Contains(s.t, []string{"unpaid", "cancelled"}, state)
		if rand.IntN(3) == 0 {
			continue
		}
		time.Sleep(rand.N(2 * timeout))
		status, state = s.call(http.MethodPost, path+"/pay")
		if status == http.StatusOK && assert.Equal(s.t, "paid", state) {
			results.add("paid", path)
		} else {
			assert.Equal(s.t, http.StatusConflict, status, state)
			results.add("too late", path)
		}
	}
}

// results has the orders by what the program has answered.
type results struct {
	mu     sync.Mutex
	orders map[string][]string
}

func (r *results) add(answer, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orders[answer] = append(r.orders[answer], strings.TrimPrefix(path, "/orders/"))
}

// timeout is short, so that orders expire between two kills.
const timeout = 300 * time.Millisecond

// TestKills kills the program again and again, KILLS times if the environment has this variable,
// and in between its connections, while customers place and pay orders. At no moment is there an
// order without its timeout, or a timeout without its order, and each order ends once.
func TestKills(t *testing.T) {
	t.Parallel()
	kills := 10 // about five seconds on an idle machine
	if text := os.Getenv("KILLS"); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	s := newShop(t)
	s.start(timeout)
	s.await()
	s.exec(`
CREATE TABLE transitions (n int GENERATED ALWAYS AS IDENTITY, id text, state text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN INSERT INTO transitions (id, state) VALUES (new.id, new.state); RETURN NULL; END';
CREATE TRIGGER note AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note()`)

	var over atomic.Bool
	var customers, checker sync.WaitGroup
	answers := &results{orders: make(map[string][]string)}
	end := func() {
		over.Store(true)
		checker.Wait()
		customers.Wait()
	}
	defer end()
	for name := range 16 {
		customers.Go(func() { s.customer(name, &over, answers) })
	}
	checker.Go(func() {
		for ; !over.Load(); time.Sleep(10 * time.Millisecond) {
			s.check()
		}
	})
	for i := 0; i < kills && !t.Failed(); i++ {
		if i%4 == 0 { // while it starts
			time.Sleep(rand.N(s.duration))
		} else {
			s.await()
			s.work()
		}
		if i%4 == 1 {
			s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'orders'`)
			s.work()
		}
		s.kill()
		s.start(timeout)
	}
	s.await()
	end()
	during := len(s.rows(`SELECT id FROM orders WHERE state = 'cancelled'`))
	require.Eventually(t, func() bool { return len(s.rows(`SELECT id FROM orders WHERE state = 'unpaid'`)) == 0 },
		proctest.Timeout, 10*time.Millisecond)
	require.NoError(t, s.proc.End(syscall.SIGTERM))
	assert.True(t, s.cmd.ProcessState.Success(), "%s", s.output())
	s.check()

	ended := make(map[string]string)
	for _, row := range s.rows(`SELECT id || ' ' || string_agg(state, ' ' ORDER BY n) FROM transitions GROUP BY id`) {
		id, states, _ := strings.Cut(row, " ")
		assert.Contains(t, []string{"unpaid paid", "unpaid cancelled"}, states, id)
		ended[id] = states
	}
	assert.Len(t, ended, len(answers.orders["placed"]))
	for _, id := range answers.orders["paid"] {
		assert.Equal(t, "unpaid paid", ended[id], id)
	}
	for _, id := range answers.orders["too late"] {
		assert.Equal(t, "unpaid cancelled", ended[id], id)
	}
	t.Logf("%d orders, %d paid, %d too late, %d cancelled before the last kill", len(ended),
		len(answers.orders["paid"]), len(answers.orders["too late"]), during)
}

func TestRequests(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.start(time.Hour)
	s.await()
	place, pay, get := http.MethodPost+" /orders/%s", http.MethodPost+" /orders/%s/pay", http.MethodGet+" /orders/%s"
	request := func(format, id string, status int, body string) {
		t.Helper()
		method, path, _ := strings.Cut(fmt.Sprintf(format, id), " ")
		gotStatus, gotBody := s.call(method, path)
		assert.Equal(t, []any{status, body}, []any{gotStatus, gotBody})
	}
	request(place, "a", http.StatusOK, "unpaid")
	request(pay, "a", http.StatusOK, "paid")
	request(pay, "a", http.StatusOK, "paid")
	request(place, "a", http.StatusOK, "paid")
	request(get, "a", http.StatusOK, "paid")
	request(get, "none", http.StatusNotFound, errNoOrder.Error())
	request(pay, "none", http.StatusNotFound, errNoOrder.Error())
	status, _ := s.call(http.MethodPost, "/orders/"+strings.Repeat("a", 1000))
	assert.Equal(t, http.StatusBadRequest, status)

	s.kill()
	s.start(time.Millisecond)
	s.await()
	status, _ = s.call(http.MethodPost, "/orders/b")
	assert.Equal(t, http.StatusOK, status)
	require.Eventually(t, func() bool {
		_, state := s.call(http.MethodGet, "/orders/b")
		return state == "cancelled"
	}, proctest.Timeout, 10*time.Millisecond)
	request(pay, "b", http.StatusConflict, errTooLate.Error())
	assert.Equal(t, []string{"a", "b"}, s.rows(`SELECT id FROM orders ORDER BY id`))
	s.check()
}

func TestConflictsAreRepeated(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.Shared(t).Database(t))
	require.NoError(t, err)
	defer pool.Close()
	s := &service{pool: pool}
	for code, want := range map[string]int{"40001": 2, "40P01": 2, "23505": 1} {
		calls := 0
		err := s.transact(t.Context(), func(pgx.Tx) error {
			if calls++; calls == 2 {
				return nil
			}
			return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})
		})
		assert.Equal(t, want, calls, code)
		assert.Equal(t, want == 1, err != nil, code)
	}
}
