package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // Redis identifies scripts by this hash
	"embed"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// The scripts, one for each transition. Their files describe arguments and results.
var (
	completeScript  = newScript("complete", "clock")
	openScript      = newScript("open", "clock limits")
	probeScript     = newScript("probe", "clock")
	heartbeatScript = newScript("members", "clock limits queue heartbeat")
	membersScript   = newScript("members", "clock limits queue")
	createScript    = newScript("create", "clock deleted partition writes")
	deleteScript    = newScript("delete", "clock").awaitsReplicas()

	deleteQueueScript  = newScript("delete_queue", "clock").awaitsReplicas()
	putScript          = newScript("put", "clock partition numbers rare times writes size head call").awaitsReplicas()
	claimScript        = newScript("claim", "clock partition numbers rare valid times writes head dead").withoutRetry()
	pauseScript        = newScript("pause", "clock partition writes call").awaitsReplicas()
	getScript          = newScript("get", "clock partition")
	listScript         = newScript("list", "clock partition numbers valid")
	countScript        = newScript("count", "clock partition head")
	countDueScript     = newScript("count_due", "clock partition")
	auditRecordsScript = newScript("audit_records", "clock partition numbers valid times writes head")
	auditStraysScript  = newScript("audit_strays", "clock partition")
	auditDeadScript    = newScript("audit_dead", "clock partition dead")
	ackScript          = newScript("ack", "clock partition").withoutRetry()
	rescheduleScript   = newScript("reschedule", "clock partition numbers rare valid times writes call head schedule").awaitsReplicas()

	opScripts = [...]*script{
		driver.OpBegin:      newScript("begin", "clock partition numbers valid times writes"),
		driver.OpAck:        ackScript,
		driver.OpRetry:      newScript("retry", "clock partition numbers rare times writes head schedule").withoutRetry(),
		driver.OpBury:       newScript("bury", "clock partition numbers rare writes dead").withoutRetry(),
		driver.OpRelease:    newScript("release", "clock partition numbers rare writes head schedule").withoutRetry(),
		driver.OpExtend:     newScript("extend", "clock partition numbers valid times writes"),
		driver.OpCancel:     newScript("cancel", "clock partition writes call").awaitsReplicas(),
		driver.OpReschedule: rescheduleScript,
		driver.OpReplay:     newScript("replay", "clock partition numbers rare times writes call head schedule dead").awaitsReplicas(),
		driver.OpPurge:      newScript("purge", "clock partition writes call dead").awaitsReplicas(),
		driver.OpExpire:     ackScript,
		driver.OpRepeat:     rescheduleScript,
	}
)

// script is a script with the parts that precede it.
type script struct {
	name          string
	source        string
	hash          string
	noRetry       bool // see withoutRetry
	awaitReplicas bool // see awaitsReplicas
}

func newScript(name, parts string) *script {
	var source strings.Builder
	for _, part := range append(strings.Fields(parts), name) {
		text, err := luaFiles.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the files are embedded, and every script is built at start
		}
		source.Write(text)
		source.WriteByte('\n')
	}
	sum := sha1.Sum([]byte(source.String())) //nolint:gosec // see above
	return &script{name: name, source: source.String(), hash: hex.EncodeToString(sum[:])}
}

// withoutRetry keeps the client from sending the script again by itself if a reply was lost,
// because the caller must know that there are two copies. The second answer to a settlement may be
// that the lease is over. A consumer repeats its claims itself: see [driver.Claim]. The queue
// repeats the other scripts without tokens: see [driver.Call].
func (s *script) withoutRetry() *script {
	s.noRetry = true
	return s
}

// awaitsReplicas marks a script that [Options].Wait covers, because a failover must not undo its
// result, nor a change by another call that the result depends on. Such a script writes something
// whenever it returns statuses. The client does not retry it either.
func (s *script) awaitsReplicas() *script {
	s.noRetry, s.awaitReplicas = true, true
	return s
}

// maxRedirects is how often a call follows redirections: from an old node, and while a slot moves.
const maxRedirects = 3

// run runs the script by its hash. If the server does not know the hash, run sends the text.
func (s *script) run(ctx context.Context, r redis.UniversalClient, line []any) (any, error) {
	for whole := false; ; whole = true {
		cmd := s.command(ctx, whole, line)
		var sent redis.Cmder = cmd
		if s.noRetry {
			sent = noRetryCmd{cmd}
		}
		if err := r.Process(ctx, sent); whole || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return cmd.Val(), err
		}
	}
}

// lineKeys is the index of the first key in a command line, after command, script and key count.
const lineKeys = 3

// newLine returns a command line without the command and the script.
func newLine(keys []any, args ...any) []any {
	return slices.Concat([]any{nil, nil, len(keys)}, keys, args)
}

// command returns EVALSHA or, if whole is true, EVAL. It sets the first two elements of line.
func (s *script) command(ctx context.Context, whole bool, line []any) *redis.Cmd {
	if line[0], line[1] = "evalsha", s.hash; whole {
		line[0], line[1] = "eval", s.source
	}
	cmd := redis.NewCmd(ctx, line...)
	cmd.SetFirstKeyPos(lineKeys)
	return cmd
}

// within makes a call to the client, and returns when the call returns or ctx ends, whichever comes
// first. By itself the client observes the deadline of a context only with its option
// ContextTimeoutEnabled, and ignores a cancellation after it has sent the command.
//
// A call that outlasts ctx continues in the background until the server answers or the ReadTimeout
// of the client has passed. Such a call must not use memory that the caller may reuse.
func within[R any](ctx context.Context, call func() (R, error)) (R, error) {
	if ctx.Done() == nil {
		return call()
	}
	type result struct {
		value R
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := call()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both have happened
		return r.value, r.err
	default:
		var zero R
		return zero, context.Cause(ctx)
	}
}

// noRetryCmd is a command that the client does not repeat by itself.
type noRetryCmd struct{ *redis.Cmd }

func (noRetryCmd) NoRetry() bool { return true }

// run runs a script on keys and passes the reply to read. It waits for replicas if [Options].Wait
// covers the script. It returns an error of package driver, or the error in the reply.
func (s *Store) run(ctx context.Context, on keyGroup, script *script, read func(*reply), args []any) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	v, err := within(ctx, func() (any, error) {
		line := newLine(on.keys, args...)
		if script.awaitReplicas && s.options.Wait > 0 {
			return s.runAndWait(ctx, script, line)
		}
		return script.run(ctx, s.client, line)
	})
	if err != nil {
		s.reloadSlots(ctx, err)
		return failure(ctx, fmt.Sprintf("%s in %s", script.name, on.name), s.nameWrongKey(ctx, err, on))
	}
	r := newReply(v)
	if read(r); r.err != nil {
		return fmt.Errorf("redisstore: %s in %s: %w", script.name, on.name, r.err)
	}
	return nil
}

// runAndWait runs a script and WAIT in one pipeline, because WAIT waits for the writes of its own
// connection and for all earlier writes. It follows the redirections of a Cluster, because the
// client does not follow redirections in a node's pipeline.
func (s *Store) runAndWait(ctx context.Context, script *script, line []any) (any, error) {
	node, err := s.node(ctx, fmt.Sprint(line[lineKeys]))
	if err != nil {
		return nil, err
	}
	v, err := s.pipeline(ctx, node.Pipeline(), script.command(ctx, false, line))
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		v, err = s.pipeline(ctx, node.Pipeline(), script.command(ctx, true, line))
	}
	from := node.Options().Addr
	for range maxRedirects {
		asked, _ := redis.IsAskError(err)
		moved, _ := redis.IsMovedError(err)
		addr := cmp.Or(asked, moved)
		if addr == "" {
			break
		}
		s.reloadSlots(ctx, err)
		from = redirected(from, addr)
		other := replicaClient(node, from)
		pipe := other.Pipeline()
		pipe.Do(ctx, "asking") // without effect on the owner of the slot
		v, err = s.pipeline(ctx, pipe, script.command(ctx, true, line))
		_ = other.Close()
	}
	return v, err
}

// redirected returns the address that a node at from means by addr in a redirection. There an IPv6
// address has no brackets, and an empty host is the host of the node itself.
func redirected(from, addr string) string {
	i := max(0, strings.LastIndexByte(addr, ':')) // there is a port
	host := strings.Trim(addr[:i], "[]")
	if host == "" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, addr[i+1:])
}

// pipeline sends a script and WAIT. A late copy does not wait: it has no result.
func (s *Store) pipeline(ctx context.Context, pipe redis.Pipeliner, cmd *redis.Cmd) (any, error) {
	_ = pipe.Process(ctx, noRetryCmd{cmd}) // only queued
	wait := pipe.Do(ctx, "wait", s.options.Wait, s.options.WaitTimeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // cmd or wait has the error
	if cmd.Err() != nil || newReply(cmd.Val()).late() {
		return cmd.Val(), cmd.Err()
	}
	n, err := wait.Int()
	if err == nil && n < s.options.Wait {
		err = fmt.Errorf("%d of %d replicas have the result after %v", n, s.options.Wait, s.options.WaitTimeout)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w; the call has taken effect on the master", driver.ErrUnavailable, err)
	}
	return cmd.Val(), err
}

// node returns the client of the server that has a key.
func (s *Store) node(ctx context.Context, key string) (*redis.Client, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return s.client.(*redis.Client), nil //nolint:errcheck // New accepts no other type
}
