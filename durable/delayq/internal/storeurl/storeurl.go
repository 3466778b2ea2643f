// Package storeurl opens the store that a URL names, for programs whose users choose a store.
//
//	file:PATH                                           a file of boltstore, created if missing
//	redis://[user:password@]host:port[/db]              one Redis server; rediss:// with TLS
//	redis-cluster://[user:password@]host:port,host:port a Redis Cluster, by some of its nodes
//	redis-sentinel://host:port,host:port/master[/db]    a master behind Sentinel
//	memory:                                             the memory of this process
//
// The schemes rediss-cluster and rediss-sentinel use TLS as well. URLs of Redis accept the
// parameters of the client's own URLs, such as ?dial_timeout=3s. A user and a password before the
// addresses of Sentinels are for the Sentinels; the parameters username and password are for the
// servers behind them. Special characters in users and passwords are percent-encoded. Paths of
// files are not encoded.
package storeurl

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/boltstore"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// mustBe ends the errors for a URL of an unknown form.
const mustBe = "it must be file:PATH, redis://[user:password@]host:port[/db], redis-cluster://host:port,host:port, " +
	"redis-sentinel://host:port,host:port/master or memory:, with rediss in place of redis for TLS"

// Open opens the store that a URL names. The returned function closes the store and its client. The
// caller calls that function once, after closing the queues of the store.
//
// Open returns [durable.ErrInvalid] for a URL of another form. If another process serves the file
// on a socket (boltstore.Options.Socket), Open connects to that process. Otherwise Open opens the
// file, and returns the errors of [boltstore.Open], such as [durable.ErrLocked]. It does not
// connect to a Redis server; opening the first queue does. No error contains a password.
func Open(url string) (durable.Store, func() error, error) {
	// An operator must be able to use any server, regardless of its settings.
	return openWith(url, redisstore.Options{AllowEviction: true, AllowLossOnCrash: true})
}

// OpenSafe is like [Open], but opening a queue of the store returns [durable.ErrUnsafe] if a server
// may lose messages.
func OpenSafe(url string) (durable.Store, func() error, error) {
	return openWith(url, redisstore.Options{})
}

func openWith(url string, options redisstore.Options) (durable.Store, func() error, error) {
	open, err := opener(url, options)
	if err != nil {
		return nil, nil, err
	}
	return open()
}

// Check returns the error that [Open] returns for the form of a URL, or nil. Check opens nothing,
// so a program can check a URL before it needs the store.
func Check(url string) error {
	_, err := opener(url, redisstore.Options{})
	return err
}

// opener checks a URL and returns a function that opens its store.
func opener(url string, options redisstore.Options) (func() (durable.Store, func() error, error), error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, urlError(url, "it has no scheme; "+mustBe)
	}
	switch strings.ToLower(scheme) {
	case "file":
		if err := checkPath(url, rest); err != nil {
			return nil, err
		}
		path, _ := Path(url)
		return func() (durable.Store, func() error, error) { return openFile(path) }, nil
	case "memory":
		if rest != "" {
			return nil, urlError(url, "memory: must have nothing after the colon")
		}
		return openMemory, nil
	}
	client, err := parse(url)
	if err != nil {
		return nil, err
	}
	return func() (durable.Store, func() error, error) { return openRedis(client(), options) }, nil
}

func checkPath(url, path string) error {
	authority, ok := strings.CutPrefix(path, "//")
	switch {
	case ok && !strings.HasPrefix(authority, "/"):
		return urlError(url, "the path after file:// must be absolute; write file:PATH for a relative path")
	case path == "":
		return urlError(url, "it has no path; it must be file:PATH")
	}
	return nil
}

func openMemory() (durable.Store, func() error, error) {
	store := memstore.New(memstore.Options{})
	return store, store.Close, nil
}

// openFile opens a file, or connects to the process that serves it. The first attempt does not wait
// for the lock, because a process that serves the file keeps the lock.
func openFile(path string) (durable.Store, func() error, error) {
	store, closeStore, err := openOrConnect(path, -1)
	if errors.Is(err, durable.ErrLocked) {
		return openOrConnect(path, 0)
	}
	return store, closeStore, err
}

func openOrConnect(path string, lockTimeout time.Duration) (durable.Store, func() error, error) {
	store, err := boltstore.Open(path, boltstore.Options{
		LockTimeout: lockTimeout,
		Socket:      len(path) <= maxSocketPath, // so that other programs can use the file
	})
	if errors.Is(err, durable.ErrLocked) {
		if remote, failed := boltstore.Connect(path); failed == nil {
			return remote, remote.Close, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}

// maxSocketPath is the longest path of a file for which all systems accept the path of its socket.
const maxSocketPath = 90

func openRedis(client redis.UniversalClient, options redisstore.Options) (durable.Store, func() error, error) {
	store, err := redisstore.New(client, options)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return store, func() error { return errors.Join(store.Close(), client.Close()) }, nil
}

func urlError(url, reason string) error {
	return fmt.Errorf("%w store URL %q: %s", durable.ErrInvalid, Redact(url), reason)
}

// Redact returns a URL without the parts that may be a user or a password.
func Redact(url string) string {
	scheme, rest, ok := strings.Cut(url, ":")
	if ok && strings.EqualFold(scheme, "file") {
		return url
	}
	if !ok {
		scheme, rest = "", url
	} else {
		scheme += ":"
	}
	slashes := rest[:len(rest)-len(strings.TrimLeft(rest, "/"))]
	rest = rest[len(slashes):]
	if at := strings.LastIndexByte(rest, '@'); at >= 0 { // the last one, because a password may contain @
		rest = hidden + rest[at:]
	} else {
		rest = redactPorts(rest)
	}
	if base, query, ok := strings.Cut(rest, "?"); ok {
		rest = base + "?" + redactQuery(query)
	}
	return scheme + slashes + rest
}

const hidden = "xxxxx"

// redactPorts replaces ports that are not numbers. Without an address, a password is in the place
// of the port.
func redactPorts(rest string) string {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	hosts := strings.Split(rest[:end], ",")
	for i, h := range hosts {
		host, port, ok := strings.Cut(h, ":")
		if ok && !strings.HasPrefix(h, "[") && strings.Trim(port, "0123456789") != "" {
			hosts[i] = host + ":" + hidden
		}
	}
	return strings.Join(hosts, ",") + rest[end:]
}

// passwords matches parameters that may be passwords, even if the name is misspelled or a semicolon
// separates them.
var passwords = regexp.MustCompile(`(?i)([^&;=]*(?:pass|pwd|secret)[^&;=]*)=[^&;]*`)

func redactQuery(query string) string {
	return passwords.ReplaceAllString(query, "${1}="+hidden)
}

// Path returns the path of a URL that names a file, and false for any other URL.
func Path(url string) (path string, ok bool) {
	scheme, path, _ := strings.Cut(url, ":")
	if !strings.EqualFold(scheme, "file") || path == "" {
		return "", false
	}
	if absolute, ok := strings.CutPrefix(path, "//"); ok {
		return absolute, strings.HasPrefix(absolute, "/")
	}
	return path, true
}
