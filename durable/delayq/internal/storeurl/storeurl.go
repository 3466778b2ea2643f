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
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// mustBe ends the errors for a URL of an unknown form.
const mustBe = "it must be dir:PATH, redis://[user:password@]host:port[/db], redis-cluster://host:port,host:port, " +
	"redis-sentinel://host:port,host:port/master or memory:, with rediss in place of redis for TLS"

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
	client, err := check(url)
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
	_, err := check(url)
	return err
}

// check checks a URL. It returns a function that creates the client of a Redis server, and nil for
// other stores.
func check(url string) (func() redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(url, ":")
	_, isPath := Path(url)
	switch scheme = strings.ToLower(scheme); {
	case isPath, scheme == "memory" && ok && rest == "":
		return nil, nil
	case !ok:
		return nil, urlError(url, "it has no scheme; "+mustBe)
	case scheme == "file":
		return nil, urlError(url, "a store is a directory now, and the files of earlier versions are not read; it must be dir:PATH")
	case scheme == "dir" && rest == "":
		return nil, urlError(url, "it has no path; it must be dir:PATH")
	case scheme == "dir":
		return nil, urlError(url, "the path after dir:// must be absolute; a relative path follows dir: without slashes")
	case scheme == "memory":
		return nil, urlError(url, "memory: must have nothing after the colon")
	}
	return parse(url)
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

const hidden = "xxxxx"

var (
	schemes = regexp.MustCompile(`(?i)^(?:[^:]*:)?/*`)

	// ports matches ports, and hosts in brackets. Without an address, a password is in the place of
	// the port.
	ports = regexp.MustCompile(`\[[^\],]*\]|:[^,]*`)

	// passwords matches parameters that may be passwords, even if the name is misspelled or a
	// semicolon separates them.
	passwords = regexp.MustCompile(`(?i)([^&;=]*(?:pass|pwd|secret)[^&;=]*)=[^&;]*`)
)

// Redact returns a URL without the parts that may be a user or a password.
func Redact(url string) string {
	scheme := schemes.FindString(url)
	if name, _, _ := strings.Cut(strings.ToLower(scheme), ":"); name == "dir" || name == "file" {
		return url
	}
	rest := url[len(scheme):]
	if at := strings.LastIndexByte(rest, '@'); at >= 0 { // the last one, because a password may contain @
		rest = hidden + rest[at:]
	} else {
		end := strings.IndexAny(rest+"/", "/?#")
		rest = ports.ReplaceAllStringFunc(rest[:end], func(port string) string {
			if port[0] == '[' || strings.Trim(port[1:], "0123456789") == "" {
				return port
			}
			return ":" + hidden
		}) + rest[end:]
	}
	return scheme + passwords.ReplaceAllString(rest, "${1}="+hidden)
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

// address holds the parts of a URL of Redis. The parsers of the client expect one address as the
// host and the others as parameters.
type address struct {
	url    string // the whole URL, for errors
	scheme string // redis or rediss
	kind   string // "", "cluster" or "sentinel"
	user   string // with the @, as it was given
	hosts  []string
	path   string // with the slash
	query  string // without the question mark
}

// parse checks a URL and returns a function that creates its client.
func parse(raw string) (func() redis.UniversalClient, error) {
	a, err := split(raw)
	if err != nil {
		return nil, err
	}
	if a.kind == "cluster" {
		o, err := redis.ParseClusterURL(a.client(""))
		if a.path != "" && a.path != "/" {
			err = errors.New("a Cluster has no databases, so there must be nothing after the addresses")
		} else if err == nil && (o.ReadOnly || o.RouteByLatency || o.RouteRandomly) {
			err = errReplicas
		}
		return func() redis.UniversalClient { return redis.NewClusterClient(o) }, a.parserError(err)
	}
	if a.kind == "sentinel" {
		master, db, _ := strings.Cut(strings.TrimPrefix(a.path, "/"), "/")
		name, _ := url.PathUnescape(master) // "" if it is not percent-encoded
		if name == "" {
			return nil, urlError(raw, "the name of the master, with a valid percent-encoding, follows the addresses: redis-sentinel://host:port,host:port/master")
		}
		o, err := redis.ParseFailoverURL(a.client("/"+db, "master_name="+url.QueryEscape(name)))
		if err == nil && o.DB < 0 {
			err = errDatabase
		} else if err == nil && (o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly) {
			err = errReplicas
		}
		return func() redis.UniversalClient { return redis.NewFailoverClient(o) }, a.parserError(err)
	}
	o, err := redis.ParseURL(a.client(a.path))
	if err == nil && o.DB < 0 {
		err = errDatabase
	}
	return func() redis.UniversalClient { return redis.NewClient(o) }, a.parserError(err)
}

// split splits a URL. The parser of the standard library does not accept several hosts.
func split(raw string) (address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	name, kind, several := strings.Cut(strings.ToLower(scheme), "-")
	if !ok || name != "redis" && name != "rediss" || several && kind != "cluster" && kind != "sentinel" {
		return address{}, urlError(raw, mustBe)
	}
	a := address{url: raw, scheme: name, kind: kind}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		a.user, authority = authority[:at+1], authority[at+1:]
	}
	a.path, a.query, _ = strings.Cut(rest[end:], "?")
	if strings.ContainsAny(rest[end:], "@#") || strings.Count(a.user, "@") > 1 {
		return a, urlError(raw, "@, #, / and ? in a user or a password must be percent-encoded, and there must be no #fragment")
	}
	// The parsers of the client ignore parameters that they cannot decode, which may be a password.
	if _, err := url.ParseQuery(a.query); err != nil {
		return a, urlError(raw, "a parameter has an invalid percent-encoding or a semicolon; parameters must be name=value&name=value")
	}
	a.hosts = strings.Split(authority, ",")
	return a, a.checkHosts(authority)
}

func (a *address) checkHosts(authority string) error {
	if a.kind == "" {
		if len(a.hosts) > 1 {
			return urlError(a.url, "there must be one address; redis-cluster:// and redis-sentinel:// take several")
		}
		if authority == "" {
			a.hosts[0] = "localhost:6379"
			return nil
		}
		if _, _, err := net.SplitHostPort(authority); err != nil {
			a.hosts[0] = net.JoinHostPort(strings.Trim(authority, "[]"), "6379")
		}
	}
	for _, h := range a.hosts {
		host, port, err := net.SplitHostPort(h)
		if n, bad := strconv.Atoi(port); err != nil || bad != nil || host == "" || n < 1 || n > 65535 {
			return urlError(a.url, "addresses must be host:port with a port from 1 to 65535, separated by commas")
		}
	}
	return nil
}

// client returns the URL in the form of the client's parsers. The path is the database.
func (a *address) client(path string, parameters ...string) string {
	parameters = append(parameters, a.query)
	for _, h := range a.hosts[1:] {
		parameters = append(parameters, "addr="+url.QueryEscape(h))
	}
	return a.scheme + "://" + a.user + a.hosts[0] + path + "?" + strings.Join(parameters, "&")
}

var (
	errReplicas = errors.New("read_only, replica_only, route_by_latency and route_randomly read from replicas, which queues do not support")
	errDatabase = errors.New("the database is negative; it must be at least 0")
)

// parserError returns the error of the client's parser, unless the error contains the URL, which
// may contain a password.
func (a *address) parserError(err error) error {
	if err == nil {
		return nil
	}
	reason := strings.TrimPrefix(err.Error(), "redis: ")
	if broken := (*url.Error)(nil); errors.As(err, &broken) {
		reason = "it is not a URL; the usual cause is an invalid percent-encoding"
	}
	return urlError(a.url, reason+"; "+mustBe)
}
