package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// isConflict reports whether a transaction may succeed if it is run again.
func isConflict(err error) bool {
	var server *pgconn.PgError
	return isStored(err) || errors.As(err, &server) &&
		(server.Code == "40001" || server.Code == "40P01" || server.Code == "22012") // a serialization failure, a deadlock, see putText
}

// isStored reports whether another transaction has stored a message after it was not found.
func isStored(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "23505" && server.TableName == "messages"
}

// kinds has the errors of package driver for the codes of the server, a code before its prefix, and
// what the user can do.
var kinds = []struct {
	code   string
	kind   error
	advice string
}{
	{"28", driver.ErrUnavailable, "the server rejects the user or the password, which may be about to change"},
	{"3D000", driver.ErrUnavailable, "the database does not exist, or is being restored"},
	{"3F000", driver.ErrVersion, "there is no such schema: call pgstore.Migrate, or run delayq migrate"},
	{"42P01", driver.ErrVersion, "a table is missing: call pgstore.Migrate, or run delayq migrate"},
	{"42703", driver.ErrVersion, "a column is missing: call pgstore.Migrate, or run delayq migrate"},
	{"42501", nil, "the user needs USAGE of the schema, and SELECT, INSERT, UPDATE and DELETE of its tables; Migrate needs CREATE"},
	{"25006", driver.ErrUnavailable, "the server is read-only, a standby perhaps: connect to the primary (target_session_attrs=read-write)"},
	{"0A000", driver.ErrUnavailable, "the server may be a standby: connect to the primary (target_session_attrs=read-write)"}, // for BEGIN READ WRITE
	{"25P", driver.ErrUnavailable, ""}, // the process stopped within a transaction, or transaction_timeout
	{"26000", driver.ErrUnavailable, "a pooler has no prepared statements: set default_query_exec_mode=exec in the connection string"},
	{"42P05", driver.ErrUnavailable, "a pooler has no prepared statements: set default_query_exec_mode=exec in the connection string"},
	{"53100", driver.ErrFull, "the disk of the server is full"},
	{"53200", driver.ErrFull, "the server is out of memory"},
	{"53", driver.ErrUnavailable, "the server has too few resources, such as connections"},
	{"08", driver.ErrUnavailable, ""},
	{"40", driver.ErrUnavailable, "the call has conflicted with others several times"},
	{"55", driver.ErrUnavailable, ""}, // lock_timeout
	{"57", driver.ErrUnavailable, ""}, // the server ends, or statement_timeout
	{"58", driver.ErrUnavailable, ""}, // of the system, for example of the disk
	{"XX", driver.ErrUnavailable, ""}, // internal
}

// declared are the errors that already have a kind.
var declared = []error{
	driver.ErrNotFound, driver.ErrNoQueue, driver.ErrClosed, driver.ErrInvalid, driver.ErrPartitions, driver.ErrOptions,
	driver.ErrVersion, driver.ErrFull, driver.ErrUnsafe, driver.ErrUnavailable,
}

// failure gives an error of a call its kind: see package driver. If ctx has ended, failure returns
// the cause of ctx.
func failure(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var server *pgconn.PgError
	switch {
	case errors.As(err, new(*driver.LateError)) || slices.ContainsFunc(declared, func(kind error) bool { return errors.Is(err, kind) }):
	case errors.As(err, &server):
		for _, k := range kinds {
			if !strings.HasPrefix(server.Code, k.code) {
				continue
			}
			if k.advice != "" {
				err = fmt.Errorf("%s: %w", k.advice, err)
			}
			if k.kind == driver.ErrFull && !strings.HasPrefix(what, "put") { // the call must succeed at last
				k.kind = driver.ErrUnavailable
			}
			if k.kind != nil {
				err = fmt.Errorf("%w: %w", k.kind, err)
			}
			break
		}
	case errors.Is(err, puddle.ErrClosedPool):
		err = fmt.Errorf("the pool is %w: %w", driver.ErrClosed, err)
	default: // of the network, or the pool
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("pgstore: %s: %w", what, err)
}
