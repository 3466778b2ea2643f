package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// The scripts, one for each transition. Their files say what they take and return.
var (
	openScript      = newScript("open", "clock")
	probeScript     = newScript("probe", "clock")
	heartbeatScript = newScript("heartbeat", "clock")
	membersScript   = newScript("members", "clock")
	createScript    = newScript("create", "clock", "partition", "writes")

	putScript          = newScript("put", "clock", "partition", "numbers", "times", "writes", "size", "head", "call").unrepeated().promises()
	claimScript        = newScript("claim", "clock", "partition", "numbers", "sound", "times", "writes", "head", "dead").unrepeated()
	pauseScript        = newScript("pause", "clock", "partition", "writes", "call").unrepeated().promises()
	getScript          = newScript("get", "clock", "partition")
	listScript         = newScript("list", "clock", "partition", "numbers", "sound")
	countScript        = newScript("count", "clock", "partition", "head")
	countDueScript     = newScript("count_due", "clock", "partition")
	auditRecordsScript = newScript("audit_records", "clock", "partition", "numbers", "sound", "writes", "head")
	auditStraysScript  = newScript("audit_strays", "clock", "partition")
	auditDeadScript    = newScript("audit_dead", "clock", "partition", "dead")

	opScripts = [...]*script{
		driver.OpBegin:      newScript("begin", "clock", "partition", "numbers", "sound", "times", "writes"),
		driver.OpAck:        newScript("ack", "clock", "partition").unrepeated(),
		driver.OpRetry:      newScript("retry", "clock", "partition", "numbers", "times", "writes", "head", "schedule"),
		driver.OpBury:       newScript("bury", "clock", "partition", "numbers", "writes", "dead"),
		driver.OpRelease:    newScript("release", "clock", "partition", "numbers", "writes", "head", "schedule"),
		driver.OpExtend:     newScript("extend", "clock", "partition", "numbers", "sound", "times", "writes"),
		driver.OpCancel:     newScript("cancel", "clock", "partition", "writes", "call").unrepeated().promises(),
		driver.OpReschedule: newScript("reschedule", "clock", "partition", "numbers", "sound", "times", "writes", "call", "head", "schedule").unrepeated().promises(),
		driver.OpReplay:     newScript("replay", "clock", "partition", "numbers", "times", "writes", "call", "head", "schedule", "dead").unrepeated().promises(),
		driver.OpPurge:      newScript("purge", "clock", "partition", "writes", "call", "dead").unrepeated().promises(),
		driver.OpExpire:     newScript("ack", "clock", "partition").unrepeated(),
	}
)

// script is a script with the parts that are read before it.
type script struct {
	name    string
	source  string
	hash    string
	once    bool // see unrepeated
	promise bool // see promises
}

func newScript(name string, parts ...string) *script {
	var source strings.Builder
	for _, part := range append(parts, name) {
		text, err := luaFiles.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the files are part of the binary: a test makes every script
		}
		source.Write(text)
		source.WriteByte('\n')
	}
	sum := sha1.Sum([]byte(source.String())) //nolint:gosec // see above
	return &script{name: name, source: source.String(), hash: hex.EncodeToString(sum[:])}
}

// unrepeated says that the client must not send the script again by itself if a reply was lost, as the
// caller has to know that there are two copies. The second answer to Ack would be that there is no
// such message. A consumer repeats its claims itself: see driver.Claim. For the other scripts without
// tokens the queue looks after the copies: see driver.Call.
func (s *script) unrepeated() *script {
	s.once = true
	return s
}

// promises says that the answer of the script promises something that a failover must not undo: [Options.Wait] covers
// it. A script that promises writes something whenever it answers StatusDone, also where an earlier call has done it.
func (s *script) promises() *script {
	s.promise = true
	return s
}

// runner is a client or a node of one.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run runs the script by its hash and, if the server does not know that, once more by its text, which makes it known.
func (s *script) run(ctx context.Context, r runner, line []any) (any, error) {
	cmd := s.command(ctx, false, line)
	err := s.process(ctx, r, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.command(ctx, true, line)
		err = s.process(ctx, r, cmd)
	}
	return cmd.Val(), err
}

// lineKeys is where the keys stand in a command line, behind the command, the script and their number.
const lineKeys = 3

// newLine is the beginning of a command line, in which the script is missing, with room for arguments.
func newLine(keys []any, room int) []any {
	line := append(make([]any, lineKeys, lineKeys+len(keys)+room), keys...)
	line[2] = len(keys)
	return line
}

// command is EVALSHA, or EVAL. It writes into the line.
func (s *script) command(ctx context.Context, whole bool, line []any) *redis.Cmd {
	if line[0], line[1] = "evalsha", s.hash; whole {
		line[0], line[1] = "eval", s.source
	}
	cmd := redis.NewCmd(ctx, line...)
	cmd.SetFirstKeyPos(lineKeys)
	return cmd
}

// within makes a call of the client, and returns when the call is over or ctx ends, whichever comes first. By itself
// the client heeds the deadline of a context only with its option ContextTimeoutEnabled, and a cancellation not at all
// once a command is on its way.
//
// A call that outlasts ctx goes on in the background until the server answers or the ReadTimeout of the client is over.
// It must not touch what belongs to the caller.
func within[R any](ctx context.Context, call func() (R, error)) (R, error) {
	if ctx.Done() == nil {
		return call()
	}
	type result struct {
		value R
		err   error
	}
	over := make(chan result, 1)
	go func() {
		v, err := call()
		over <- result{v, err}
	}()
	select {
	case r := <-over:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-over: // both have happened
		return r.value, r.err
	default:
		var zero R
		return zero, context.Cause(ctx)
	}
}

func (s *script) process(ctx context.Context, r runner, cmd *redis.Cmd) error {
	if s.once {
		return r.Process(ctx, onceCmd{cmd})
	}
	return r.Process(ctx, cmd)
}

// onceCmd is a command that the client does not send again by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// runAndWait runs a script and WAIT in one pipeline: WAIT is about the writes of its own connection. So a call that is
// repeated writes too. A call that has changed nothing has nothing to wait for.
func (s *Store) runAndWait(ctx context.Context, script *script, key string, line []any) (any, error) {
	node, err := s.node(ctx, key)
	if err != nil {
		return nil, err
	}
	for whole := false; ; whole = true {
		cmd := script.command(ctx, whole, line)
		pipe := node.Pipeline()
		_ = script.process(ctx, pipe, cmd) // only queued
		wait := pipe.Do(ctx, "wait", s.options.Wait, s.options.WaitTimeout.Milliseconds())
		_, err := pipe.Exec(ctx)
		switch {
		case redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") && !whole:
			continue
		case cmd.Err() != nil:
			return nil, cmd.Err()
		case !changed(cmd.Val()):
			return cmd.Val(), nil
		case err != nil:
			return nil, err
		}
		return cmd.Val(), s.enough(wait)
	}
}

// changed reports whether one of the statuses that a script has returned is StatusDone.
func changed(v any) bool {
	if values, ok := v.([]any); ok && len(values) > 2 && values[0] != late {
		v = values[2]
	}
	text, _ := v.(string)
	return strings.Contains(text, strconv.Itoa(int(driver.StatusDone)))
}

// enough checks the number of replicas that WAIT has returned.
func (s *Store) enough(wait *redis.Cmd) error {
	n, err := wait.Int()
	if err == nil && n < s.options.Wait {
		err = fmt.Errorf("%w: %d of %d replicas have the change after %v; it has taken place on the master",
			driver.ErrUnavailable, n, s.options.Wait, s.options.WaitTimeout)
	}
	return err
}

// node is the client of the server that has a key.
func (s *Store) node(ctx context.Context, key string) (redis.Cmdable, error) {
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	case *redis.Ring:
		return client.GetShardClientForKey(key)
	default:
		return client, nil
	}
}
