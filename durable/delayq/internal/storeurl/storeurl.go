// Package storeurl opens the store that a URL names, for programs that let their users choose one.
//
//	file:PATH                                           a file of boltstore; made if it is not there
//	redis://[user:password@]host:port[/db]              one Redis server; rediss:// with TLS
//	redis-cluster://[user:password@]host:port,host:port a Redis Cluster, by some of its nodes; rediss-cluster:// with TLS
//	redis-sentinel://host:port,host:port/master[/db]    a master by its Sentinels; rediss-sentinel:// with TLS
//	memory:                                             the memory of this process
//
// The URLs of Redis take the parameters that the client's own URLs have, such as ?dial_timeout=3s. A user and a
// password before the addresses of Sentinels are theirs; those of the servers behind them are the parameters username and password.
// Special characters of users and passwords are percent-encoded. A path is taken as it is.
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

// Accepted says in one sentence which URLs there are, for the help of a program.
const Accepted = "file:PATH, redis://[user:password@]host:port[/db], redis-cluster://host:port,host:port, " +
	"redis-sentinel://host:port,host:port/master, or memory: are accepted, and rediss in place of redis for TLS"

// Open opens the store that a URL names. What it returns second closes the store, and the client that was made for it; it
// is to be called once, when the queues of the store are closed.
//
// A URL of another form is [durable.ErrInvalid]. A file that another process serves on a socket (boltstore.Options.Socket) is
// used through it. Any other file is opened at once, so that its errors are those of
// [boltstore.Open], such as [durable.ErrLocked]. A server is not reached before the first queue is opened. No error has a password in it.
func Open(url string) (durable.Store, func() error, error) {
	open, err := opener(url)
	if err != nil {
		return nil, nil, err
	}
	return open()
}

// Check is the error that [Open] would return for the form of a URL. It opens nothing, so that a program can check a URL long before
// it needs the store.
func Check(url string) error {
	_, err := opener(url)
	return err
}

// opener checks a URL and returns what opens its store.
func opener(url string) (func() (durable.Store, func() error, error), error) {
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
	return func() (durable.Store, func() error, error) { return openRedis(client()) }, nil
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
	// Other programs can use the file meanwhile, unless the path is too long for a socket.
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

// maxSocketPath is the length of a path that has a socket beside it on all systems.
const maxSocketPath = 90

func openRedis(client redis.UniversalClient) (durable.Store, func() error, error) {
	// An operator works with the servers that there are, however they are set up.
	store, err := redisstore.New(client, redisstore.Options{AllowEviction: true, AllowLossOnCrash: true})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return store, func() error { return errors.Join(store.Close(), client.Close()) }, nil
}

func refuse(url, reason string) error {
	return fmt.Errorf("%w store URL %q: %s", durable.ErrInvalid, Redact(url), reason)
}

// Redact is a URL as it may be shown: what may be a user or a password is left out.
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
	if at := strings.LastIndexByte(rest, '@'); at >= 0 { // the last one: the password may have one, by mistake
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

// redactPorts leaves out what stands in the place of a port and is no number: where the address was forgotten it is the password.
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

// passwords are parameters that may be one, also where the name is misspelt or a semicolon separates them.
var passwords = regexp.MustCompile(`(?i)([^&;=]*(?:pass|pwd|secret)[^&;=]*)=[^&;]*`)

func redactQuery(query string) string {
	return passwords.ReplaceAllString(query, "${1}="+hidden)
}

// Path is the path of a URL that stands for a file, and false for any other URL.
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
