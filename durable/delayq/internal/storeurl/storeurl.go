// Package storeurl opens the store that a URL names. The help text of delayq describes the URLs.
package storeurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
	"github.com/timingwheel-go/timingwheel/durable/pebblestore"
	"github.com/timingwheel-go/timingwheel/durable/pgstore"
	"github.com/timingwheel-go/timingwheel/durable/redisstore"
)

// errForm describes the URLs that are accepted.
var errForm = errors.New("it must be dir:PATH, dir:///PATH, memory:, redis://[user:password@]host:port[/db], redis-cluster://host:port,host:port or " +
	"redis-sentinel://host:port,host:port/master[/db], with rediss in place of redis for TLS, or postgres://[user[:password]@]host[:port][/database], " +
	"with the parameters of go-redis such as ?dial_timeout=3s, or of pgxpool such as ?sslmode=require, and percent-encoding")

// Use is what a program does with a store.
type Use struct {
	Consume bool // it consumes messages, and serves a directory to other programs meanwhile
	Read    bool // it only reads, so it keeps no directory from another program
	All     bool // it reads all messages, so the program that has a directory open only makes a copy
	Safe    bool // it rejects a server that may lose messages, which an operator must be able to use
}

// Opener opens a store. Closing the store closes its client too.
//
// If another program has the directory open and serves it, the Opener connects to that program,
// unless use is Consume or All. Otherwise it returns the errors of [pebblestore.Open], such as
// [durable.ErrLocked]. It does not connect to a server; opening the first queue does.
type Opener func(use Use) (durable.Store, error)

// Parse returns the Opener for a URL, and [durable.ErrInvalid] for a URL of another form. It opens
// nothing, so a program can check a URL before it needs the store. No error contains a password.
func Parse(raw string) (open Opener, err error) {
	if path, ok := Path(raw); ok {
		return func(use Use) (durable.Store, error) { return openDirectory(path, use) }, nil
	}
	if strings.EqualFold(raw, "memory:") {
		return func(Use) (durable.Store, error) { return memstore.New(memstore.Options{}), nil }, nil
	}
	kind, one, err := clientURL(raw)
	if err == nil {
		if open, err = openerOf(kind, one); err == nil {
			return open, nil
		}
		err = errForm // the text of err may have a part of a password
	}
	return nil, fmt.Errorf("%w store URL %q: %w", durable.ErrInvalid, Redact(raw), err)
}

// openDirectory opens a directory, or connects to the program that serves it: see [Opener].
func openDirectory(path string, use Use) (s *pebblestore.Store, err error) {
	// Some systems accept no longer paths of sockets.
	options := pebblestore.Options{Logger: slog.New(slog.DiscardHandler), Socket: use.Consume && len(path) <= 80}
	for range 2 { // the other program may just be starting
		if !use.Consume && !use.All {
			if s, err = pebblestore.Connect(path); err == nil {
				return s, nil
			}
		}
		if use.Read {
			s, err = pebblestore.OpenSnapshot(context.Background(), path, options)
		} else {
			s, err = pebblestore.Open(path, options)
		}
		if !errors.Is(err, durable.ErrLocked) {
			return s, err
		}
	}
	return s, err
}

// onRedis is a store with its client.
type onRedis struct {
	*redisstore.Store
	client redis.UniversalClient
}

func (r onRedis) Close() error { return errors.Join(r.Store.Close(), r.client.Close()) }

func openRedis(client redis.UniversalClient, use Use) (durable.Store, error) {
	store, err := redisstore.New(client, redisstore.Options{AllowEviction: !use.Safe, AllowLossOnCrash: !use.Safe})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return onRedis{store, client}, nil
}

// Postgres is a store on PostgreSQL with its pool, which Close closes too.
type Postgres struct {
	*pgstore.Store
	Schema string
	pool   *pgxpool.Pool
}

func (p *Postgres) Close() error {
	defer p.pool.Close()
	return p.Store.Close()
}

// Migrate calls [pgstore.Migrate], and reports whether the schema was missing or older.
func (p *Postgres) Migrate(ctx context.Context) (changed bool, err error) {
	_, err = p.Open(ctx, driver.Config{Queue: "default", Existing: true})
	return errors.Is(err, durable.ErrVersion), pgstore.Migrate(ctx, p.pool, pgstore.Options{Schema: p.Schema})
}

func openPostgres(config *pgxpool.Config, use Use) (durable.Store, error) {
	o := pgstore.Options{Schema: cmp.Or(config.ConnConfig.RuntimeParams["schema"], "timingwheel"), AllowLossOnCrash: !use.Safe}
	delete(config.ConnConfig.RuntimeParams, "schema")
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, 5*time.Second) // as go-redis does
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, err
	}
	store, err := pgstore.New(pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Postgres{store, o.Schema, pool}, nil
}

// harmless matches what contains no password: the URL of a directory, and the known schemes.
var harmless = regexp.MustCompile(`(?is)^(?:dir:.*|memory:|rediss?(?:-cluster|-sentinel)?:|postgres(?:ql)?:)`)

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

// form is the form of a URL of a server: the scheme, the kind, the user with the @, the addresses,
// the path and the parameters. Only digits can be taken for a port, such as the digits of a
// password that no @ follows. No database is negative.
var form = regexp.MustCompile(`(?i)^(rediss?|postgres(?:ql)?)(?:-(cluster|sentinel))?://([^@/?#]*@)?(` + address + `(?:,` + address +
	`)*)((?:/(?:[^-@/?#][^@/?#]*)?)*)(?:\?([^@#]*))?$`)

const address = `(?:\[[^]@/?#,]*]|[^][@/?#,:]*)(?::\d*)?`

// clientURL returns the kind of a URL, and the URL for the parser of the client. The parser of
// Redis expects one address as the host, and the others and the name of the master as parameters.
func clientURL(raw string) (kind, one string, err error) {
	m := form.FindStringSubmatch(raw)
	if m == nil {
		return "", "", errForm
	}
	scheme, kind, path, hosts := strings.ToLower(m[1]), strings.ToLower(m[2]), m[5], strings.Split(m[4], ",")
	parameters, err := url.ParseQuery(m[6]) // the parsers ignore parameters that they cannot decode
	if err != nil || kind == "cluster" && strings.Trim(path, "/") != "" {
		return "", "", errForm
	}
	if kind == "" && strings.HasPrefix(scheme, "postgres") {
		return "postgres", scheme + raw[len(scheme):], nil
	}
	if kind == "sentinel" {
		master, db, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		name, err := url.PathUnescape(master)
		if err != nil || name == "" {
			return "", "", errForm
		}
		path = "/" + db
		parameters.Set("master_name", name)
	}
	if slices.ContainsFunc([]string{"read_only", "replica_only", "route_by_latency", "route_randomly"}, parameters.Has) {
		return "", "", errors.New("a parameter makes the client read from replicas, which queues do not support")
	}
	for _, host := range hosts[1:] {
		parameters.Add("addr", host)
	}
	return kind, scheme + "://" + m[3] + hosts[0] + path + "?" + parameters.Encode(), nil
}

// openerOf parses what clientURL has returned.
func openerOf(kind, one string) (Opener, error) {
	switch kind {
	case "cluster":
		o, err := redis.ParseClusterURL(one)
		return func(use Use) (durable.Store, error) { return openRedis(redis.NewClusterClient(o), use) }, err
	case "sentinel":
		o, err := redis.ParseFailoverURL(one)
		return func(use Use) (durable.Store, error) { return openRedis(redis.NewFailoverClient(o), use) }, err
	case "postgres":
		config, err := pgxpool.ParseConfig(one)
		return func(use Use) (durable.Store, error) { return openPostgres(config, use) }, err
	}
	o, err := redis.ParseURL(one)
	return func(use Use) (durable.Store, error) { return openRedis(redis.NewClient(o), use) }, err
}
