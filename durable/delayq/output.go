package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// newTable returns a table with a header. Its rows have strings and numbers.
func newTable(columns ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(columns)
	return t
}

// printTable prints a table that has rows, unless JSON was printed instead.
func (a *app) printTable(t table.Writer) error {
	if a.json || t.Length() == 0 {
		return nil
	}
	return a.print(t.Render())
}

// propertyTable formats a table of names and values, without a header.
func propertyTable(rows ...table.Row) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendRows(rows)
	return t.Render()
}

// result prints text, or v with -json.
func (a *app) result(v any, text string) error {
	if a.json {
		return a.printJSON(v)
	}
	return a.print(text)
}

func (a *app) printJSON(v any) error { return json.NewEncoder(a.stdout).Encode(v) }

// object returns the exported fields of a struct for JSON, with names such as inFlight. Durations
// are in milliseconds, and their names end in Ms. Zero times and empty headers are left out.
func object(v any) map[string]any {
	o := make(map[string]any)
	value := reflect.ValueOf(v)
	for _, f := range reflect.VisibleFields(value.Type()) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name := strings.ToLower(f.Name[:1]) + f.Name[1:]
		if strings.ToUpper(f.Name) == f.Name { // ID, PID
			name = strings.ToLower(name)
		}
		switch x := value.FieldByIndex(f.Index).Interface().(type) {
		case time.Time:
			if !x.IsZero() {
				o[name] = timeJSON(x)
			}
		case time.Duration:
			o[name+"Ms"] = x.Milliseconds()
		case map[string]string:
			if len(x) > 0 {
				o[name] = x
			}
		default:
			o[name] = x
		}
	}
	return o
}

// messageJSON returns a message for JSON. The body is text, or base64 if it is not UTF-8.
func messageJSON(message any, body []byte) map[string]any {
	o := object(message)
	if o["body"] = string(body); !utf8.Valid(body) {
		delete(o, "body")
		o["bodyBase64"] = body
	}
	return o
}

// recordJSON returns a record for JSON: with its error instead of its body if it cannot be read.
func recordJSON(r *durable.Record) map[string]any {
	o := messageJSON(*r, r.Body)
	delete(o, "err")
	o["state"] = stateNames[r.State]
	if r.Reason == "" {
		delete(o, "reason")
	}
	if r.Err != nil {
		delete(o, "body")
		o["error"] = r.Err.Error()
	}
	return o
}

// timeJSON returns a time that JSON can represent. The last year in JSON is 9999, and due times may
// be later: such a time becomes the end of 9999.
func timeJSON(t time.Time) time.Time {
	if t.Year() <= 9999 {
		return t
	}
	return time.UnixMilli(min(t.UnixMilli(), time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli())).UTC()
}

var stateNames = map[durable.State]string{
	durable.StateScheduled: "scheduled",
	durable.StateLeased:    "claimed", // by a consumer, ahead of its due time
	durable.StateFiring:    "delivering",
	durable.StateDead:      "dead",
}

// formatTime formats a time, with the time from now on this machine's clock in brackets.
func formatTime(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !t.Before(driver.Never.Time()):
		return "never"
	}
	relative := "in " + formatDuration(time.Until(t))
	if d := time.Since(t); d > 0 {
		relative = formatDuration(d) + " ago"
	}
	return t.Format("2006-01-02 15:04:05.000 MST") + " (" + relative + ")"
}

// formatDuration formats a duration. Durations of stores are in milliseconds.
func formatDuration(d time.Duration) string {
	switch {
	case d == math.MaxInt64: // of time.Until
		return "292 years or more"
	case d >= 2*day:
		return strings.Replace(fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour), "d0h", "d", 1)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// count returns a number of things, whose name has a regular plural.
func count[T int | int64](n T, name string) string {
	if n != 1 {
		name += "s"
	}
	return fmt.Sprint(n, " ", name)
}

// preview returns the beginning of a text, up to a number of columns, on one line and without
// control characters.
func preview(s string, columns int) string {
	quoted := strconv.Quote(s[:min(len(s), columns*utf8.UTFMax)])
	return text.Snip(strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), columns, "…")
}

// sizeOf returns the size of a terminal, or 80x24 if it is unknown. It returns zeros for a stream
// that is no terminal with control characters.
func sizeOf(stream any) (columns, rows int) {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, 0
	}
	if columns, rows, _ = term.GetSize(int(f.Fd())); columns > 0 && rows > 0 {
		return columns, rows
	}
	return 80, 24
}

func isTerminal(stream any) bool { columns, _ := sizeOf(stream); return columns > 0 }

// until returns the error of f, or the cause of the end of ctx if ctx ends first. Reading from a
// terminal and writing to a pipe cannot be interrupted.
func until(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lineWriter forwards whole lines, so that lines of several commands do not mix. It keeps the last
// line and, unless it is lossy, the first write error.
type lineWriter struct {
	to     io.Writer
	lossy  bool   // a command does not fail because its messages on stderr cannot be printed
	part   []byte // an incomplete line
	last   string
	failed error
}

// longestLine is the number of bytes after which an incomplete line is forwarded.
const longestLine = 64 << 10

func (l *lineWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	end := bytes.LastIndexByte(l.part, '\n') + 1
	if end == 0 && len(l.part) >= longestLine {
		end = len(l.part)
	}
	if whole := bytes.TrimSpace(l.part[:end]); len(whole) > 0 {
		l.last = string(bytes.TrimSpace(whole[bytes.LastIndexByte(whole, '\n')+1:]))
	}
	if _, err := l.to.Write(l.part[:end]); !l.lossy {
		l.failed = cmp.Or(l.failed, err)
	}
	l.part = append(l.part[:0], l.part[end:]...)
	return len(p), l.failed
}

// close forwards an incomplete last line.
func (l *lineWriter) close() {
	if len(l.part) > 0 {
		_, _ = l.Write([]byte("\n"))
	}
}
