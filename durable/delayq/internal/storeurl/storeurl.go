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
	"regexp"
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
