// Package storeurl opens the store that a URL names, for programs that let their users choose one.
//
//	file:PATH                                           a file of boltstore, made if it does not exist
//	redis://[user:password@]host:port[/db]              one Redis server; rediss:// with TLS
//	redis-cluster://[user:password@]host:port,host:port a Redis Cluster, by some of its nodes
//	redis-sentinel://host:port,host:port/master[/db]    a master by its Sentinels
//	memory:                                             the memory of this process
//
// The schemes rediss-cluster and rediss-sentinel use TLS as well. URLs of Redis take the parameters
// of the client's own URLs, such as ?dial_timeout=3s. A user and a password before the addresses of
// Sentinels are for the Sentinels; the parameters username and password are for the servers behind
// them. Special characters in users and passwords are percent-encoded. Paths are not encoded.
package storeurl

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/boltstore"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// Accepted lists the accepted URLs in one sentence, for the help of a program.
const Accepted = "file:PATH, redis://[user:password@]host:port[/db], redis-cluster://host:port,host:port, " +
	"redis-sentinel://host:port,host:port/master, or memory: are accepted, and rediss in place of redis for TLS"

// Open opens the store that a URL names. The returned function closes the store and the client that
// was made for it. The caller calls it once, after closing the queues of the store.
//
// A URL of another form is [durable.ErrInvalid]. If another process serves the file on a socket
// (boltstore.Options.Socket), Open connects to that process. Otherwise it opens the file, with the
// errors of [boltstore.Open], such as [durable.ErrLocked]. It does not connect to a server; opening
// the first queue does. No error contains a password.
func Open(url string) (durable.Store, func() error, error) {
	// Operators work with the servers they have, however those are set up.
	return openWith(url, redisstore.Options{AllowEviction: true, AllowLossOnCrash: true})
}

// OpenSafe is [Open] of a store whose queues are [durable.ErrUnsafe] if a server may lose messages.
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

// Check returns the error of [Open] for the form of a URL. It opens nothing, so a program can check
// a URL long before it needs the store.
func Check(url string) error {
	_, err := opener(url, redisstore.Options{})
	return err
}

// opener checks a URL and returns a function that opens its store.
func opener(url string, options redisstore.Options) (func() (durable.Store, func() error, error), error) {
	scheme, rest, ok := strings.Cut(url, ":")
	if !ok {
		return nil, refuse(url, "it has no scheme; "+Accepted)
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
			return nil, refuse(url, "memory: has nothing after the colon")
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
		return refuse(url, "after file:// an absolute path is accepted; write file:PATH for another one")
	case path == "":
		return refuse(url, "it has no path; file:PATH is accepted")
	}
	return nil
}

func openMemory() (durable.Store, func() error, error) {
	store := memstore.New(memstore.Options{})
	return store, store.Close, nil
}

func openFile(path string) (durable.Store, func() error, error) {
	// Other programs can use the file through the socket, unless the path is too long for one.
	store, err := boltstore.Open(path, boltstore.Options{Socket: len(path) <= maxSocketPath})
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

// maxSocketPath is the length of a path up to which all systems accept a socket beside it.
const maxSocketPath = 90

func openRedis(client redis.UniversalClient, options redisstore.Options) (durable.Store, func() error, error) {
	store, err := redisstore.New(client, options)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return store, func() error { return errors.Join(store.Close(), client.Close()) }, nil
}

func refuse(url, reason string) error {
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
	if at := strings.LastIndexByte(rest, '@'); at >= 0 { // the last, as a password may contain one
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

// redactPorts replaces ports that are no numbers. If the address is missing, a password stands in
// its place.
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

// passwords matches parameters that may be passwords, even if the name is misspelt or a semicolon
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
