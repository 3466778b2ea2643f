package redisstore

import (
	"context"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// WatchStart is how long Watch waits for the subscription, and WatchPing how long a connection is
// silent before a PING.
const WatchStart, WatchPing = watchStartTimeout, watchPingAfter

// ClaimHash is the hash of claim.lua.
var ClaimHash = claimScript.hash

// AuditRecordsHash is the hash of audit_records.lua.
var AuditRecordsHash = auditRecordsScript.hash

// BackendOf returns a queue without calls to the server.
func BackendOf(s *Store, config driver.Config) driver.Backend {
	return newBackend(s, config, meta{}, false, false)
}

// OpenUnsharded opens a queue as on a Cluster of servers before 7.0, which have no channels of
// shards.
func OpenUnsharded(ctx context.Context, s *Store, config driver.Config) (driver.Backend, error) {
	b, err := s.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return newBackend(s, config, b.(*backend).meta, false, true), nil
}
