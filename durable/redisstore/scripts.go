package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"embed"
	"encoding/hex"
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

	putScript          = newScript("put", "clock", "partition", "numbers", "times", "writes", "head")
	claimScript        = newScript("claim", "clock", "partition", "numbers", "sound", "times", "writes", "head", "dead")
	getScript          = newScript("get", "clock", "partition")
	listScript         = newScript("list", "clock", "partition", "numbers")
	countScript        = newScript("count", "clock", "partition", "head")
	auditRecordsScript = newScript("audit_records", "clock", "partition", "numbers", "sound", "writes", "head")
	auditStraysScript  = newScript("audit_strays", "clock", "partition")

	opScripts = [...]*script{
		driver.OpBegin:      newScript("begin", "clock", "partition", "numbers", "times", "writes"),
		driver.OpAck:        newScript("ack", "clock", "partition").unrepeated(),
		driver.OpRetry:      newScript("retry", "clock", "partition", "numbers", "times", "writes", "head", "schedule"),
		driver.OpBury:       newScript("bury", "clock", "partition", "numbers", "writes", "dead"),
		driver.OpRelease:    newScript("release", "clock", "partition", "numbers", "writes", "head", "schedule"),
		driver.OpExtend:     newScript("extend", "clock", "partition", "numbers", "times", "writes"),
		driver.OpCancel:     newScript("cancel", "clock", "partition").unrepeated(),
		driver.OpReschedule: newScript("reschedule", "clock", "partition", "numbers", "sound", "times", "writes", "head", "schedule"),
		driver.OpReplay:     newScript("replay", "clock", "partition", "numbers", "times", "writes", "head", "schedule"),
		driver.OpPurge:      newScript("purge", "clock", "partition").unrepeated(),
		driver.OpExpire:     newScript("ack", "clock", "partition").unrepeated(),
	}
)

// script is a script with the parts that are read before it.
type script struct {
	name   string
	source string
	hash   string
	once   bool // see unrepeated
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

// unrepeated says that the client must not run the script again by itself where a reply was lost. The second answer would be
// that there is no such message, and the caller could not know that the first call has removed it.
func (s *script) unrepeated() *script {
	s.once = true
	return s
}

// runner is a client or a node of one.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run runs the script by its hash and, where the server does not know that, once more by its text, which makes it known. If once
// is set, the client does not repeat it by itself when a reply was lost.
func (s *script) run(ctx context.Context, r runner, once bool, line []any) (any, error) {
	once = once || s.once
	cmd := s.command(ctx, false, line)
	err := process(ctx, r, cmd, once)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = s.command(ctx, true, line)
		err = process(ctx, r, cmd, once)
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

func process(ctx context.Context, r runner, cmd *redis.Cmd, once bool) error {
	if once {
		return r.Process(ctx, onceCmd{cmd})
	}
	return r.Process(ctx, cmd)
}

// onceCmd is a command that the client does not send again by itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }
