// Package storeurl opens the store that a URL names, for programs whose users choose a store.
//
//	dir:PATH                                            a directory of pebblestore, created if missing
//	redis://[user:password@]host:port[/db]              one Redis server; rediss:// with TLS
//	redis-cluster://[user:password@]host:port,host:port a Redis Cluster, by some of its nodes
//	redis-sentinel://host:port,host:port/master[/db]    a master behind Sentinel
//	memory:                                             the memory of this process
//
// The schemes rediss-cluster and rediss-sentinel use TLS as well. URLs of Redis accept the
// parameters of the client's own URLs, such as ?dial_timeout=3s. A user and a password before the
// addresses of Sentinels are for the Sentinels; the parameters username and password are for the
// servers behind them. Special characters in users and passwords are percent-encoded. Paths of
// directories are not encoded.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// mustBe ends the errors for a URL of an unknown form.
const mustBe = "it must be dir:PATH, dir:///PATH, memory:, redis://[user:password@]host:port[/db], redis-cluster://host:port,host:port or " +
	"redis-sentinel://host:port,host:port/master[/db], with rediss in place of redis for TLS, the parameters of go-redis such as " +
	"?dial_timeout=3s, and percent-encoding"

// Use is what a program does with a store.
type Use struct {
	Consume bool // it consumes messages, and serves a directory to other programs meanwhile
	Read    bool // it only reads, so it keeps no directory from another program
	All     bool // it reads all messages, so the program that has a directory open only makes a copy

	// Safe makes opening a queue return [durable.ErrUnsafe] if a server may lose messages. An
	// operator must be able to use any server.
	Safe bool
}

// Open opens the store that a URL names. The returned function closes the store and its client. The
// caller calls that function once, after closing the queues of the store.
//
// Open returns [durable.ErrInvalid] for a URL of another form. If another program has the directory
// open and serves it, Open connects to that program, unless use is Consume or All. Otherwise Open
// returns the errors of [pebblestore.Open], such as [durable.ErrLocked]. It does not connect to a
// Redis server; opening the first queue does. No error contains a password.
func Open(url string, use Use) (durable.Store, func() error, error) {
	client, err := parse(url)
	if err != nil {
		return nil, nil, err
	}
	if client != nil {
		return openRedis(client(), redisstore.Options{AllowEviction: !use.Safe, AllowLossOnCrash: !use.Safe})
	}
	path, ok := Path(url)
	if !ok {
		store := memstore.New(memstore.Options{})
		return store, store.Close, nil
	}
	store, err := openDirectory(path, use)
	if err != nil {
		return nil, nil, err
	}
	return store, store.Close, nil
}

// Check returns the error that [Open] returns for the form of a URL, or nil. Check opens nothing,
// so a program can check a URL before it needs the store.
func Check(url string) error {
	_, err := parse(url)
	return err
}

// openDirectory opens a directory, or connects to the program that serves it: see [Open].
func openDirectory(path string, use Use) (s *pebblestore.Store, err error) {
	connects := !use.Consume && !use.All
	if connects {
		if s, err = pebblestore.Connect(path); err == nil {
			return s, nil
		}
	}
	options := pebblestore.Options{Logger: slog.New(slog.DiscardHandler), Socket: use.Consume && len(path) <= maxSocketDir}
	if use.Read {
		s, err = pebblestore.OpenSnapshot(context.Background(), path, options)
	} else {
		s, err = pebblestore.Open(path, options)
	}
	if connects && errors.Is(err, durable.ErrLocked) { // by a program that was just starting
		if served, failed := pebblestore.Connect(path); failed == nil {
			return served, nil
		}
	}
	return s, err
}

// maxSocketDir is the longest path of a directory whose socket all systems accept.
const maxSocketDir = 80

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

// harmless matches what contains no password: the URL of a directory, and the known schemes.
var harmless = regexp.MustCompile(`(?is)^(?:dir:.*|memory:|rediss?(?:-cluster|-sentinel)?:)`)

// Redact returns a URL without what may contain a password.
func Redact(url string) string {
	if shown := harmless.FindString(url); shown != url {
		return shown + "…"
	}
	return url
}

// Path returns the path of a URL that names a directory, and false for any other URL.
func Path(url string) (path string, ok bool) {
	scheme, path, _ := strings.Cut(url, ":")
	if !strings.EqualFold(scheme, "dir") || path == "" {
		return "", false
	}
	if absolute, ok := strings.CutPrefix(path, "//"); ok {
		return absolute, strings.HasPrefix(absolute, "/")
	}
	return path, true
}

// form is the form of a URL of Redis: the scheme, the kind, the user with the @, the addresses, the
// path and the parameters. Only digits can be taken for a port, such as those of a password that no
// @ follows. No database is negative.
var form = regexp.MustCompile(`(?i)^(rediss?)(?:-(cluster|sentinel))?://([^@/?#]*@)?(` + address + `(?:,` + address +
	`)*)((?:/(?:[^-@/?#][^@/?#]*)?)*)(?:\?([^@#]*))?$`)

const address = `(?:\[[^]@/?#,]*]|[^][@/?#,:]*)(?::\d*)?`

// parse checks a URL. It returns a function that creates the client of a Redis server, and nil for
// other stores.
func parse(raw string) (func() redis.UniversalClient, error) {
	if _, isPath := Path(raw); isPath || strings.EqualFold(raw, "memory:") {
		return nil, nil
	}
	kind, one, err := clientURL(raw)
	if err != nil {
		return nil, err
	}
	if client, err := clientOf(kind, one); err == nil {
		return client, nil
	}
	return nil, urlError(raw, mustBe) // the text of err may have a part of a password
}

// clientURL returns the kind of a URL, and the URL for the parser of the client, which expects one
// address as the host, and the others and the name of the master as parameters.
func clientURL(raw string) (kind, one string, err error) {
	m := form.FindStringSubmatch(raw)
	if m == nil {
		return "", "", urlError(raw, mustBe)
	}
	kind, path, hosts := strings.ToLower(m[2]), m[5], strings.Split(m[4], ",")
	parameters, err := url.ParseQuery(m[6]) // the parser ignores parameters that it cannot decode
	if err != nil || kind == "cluster" && strings.Trim(path, "/") != "" {
		return "", "", urlError(raw, mustBe)
	}
	if kind == "sentinel" {
		master, db, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		name, err := url.PathUnescape(master)
		if err != nil || name == "" {
			return "", "", urlError(raw, mustBe)
		}
		path = "/" + db
		parameters.Set("master_name", name)
	}
	for _, name := range []string{"read_only", "replica_only", "route_by_latency", "route_randomly"} {
		if parameters.Has(name) {
			return "", "", urlError(raw, name+" reads from replicas, which queues do not support")
		}
	}
	for _, host := range hosts[1:] {
		parameters.Add("addr", host)
	}
	return kind, strings.ToLower(m[1]) + "://" + m[3] + hosts[0] + path + "?" + parameters.Encode(), nil
}

func clientOf(kind, one string) (func() redis.UniversalClient, error) {
	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(one)
		return func() redis.UniversalClient { return redis.NewClusterClient(o) }, err
	case "sentinel":
		o, err := redis.ParseFailoverURL(one)
		return func() redis.UniversalClient { return redis.NewFailoverClient(o) }, err
	}
	o, err := redis.ParseURL(one)
	return func() redis.UniversalClient { return redis.NewClient(o) }, err
}
