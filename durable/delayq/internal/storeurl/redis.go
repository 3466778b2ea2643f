package storeurl

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

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
