package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// newTable returns a table with a header. The columns in right, and numbers, are right-aligned.
func newTable(header table.Row, right ...int) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for _, number := range right {
		columns = append(columns, table.ColumnConfig{Number: number, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// propertyTable formats a table of names and values, without a header.
func propertyTable(rows ...table.Row) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendRows(rows)
	return t.Render()
}

// print writes a line to stdout.
func (a *app) print(line string) error {
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

// result prints text, or v with -json.
func (a *app) result(v any, text string) error {
	if a.json {
		return a.printJSON(v)
	}
	return a.print(text)
}

// printJSON writes a value as one line.
func (a *app) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.print(string(line))
}

// messageJSON is a message as JSON. The body is text, or base64 if it is not UTF-8.
type messageJSON struct {
	ID          string            `json:"id"`
	State       string            `json:"state,omitempty"`
	Body        *string           `json:"body,omitempty"`
	BodyBase64  []byte            `json:"bodyBase64,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Enqueued    time.Time         `json:"enqueued"`
	Due         time.Time         `json:"due"`
	ExpireAt    time.Time         `json:"expireAt,omitzero"`
	Attempts    int               `json:"attempts"`
	Crashes     int               `json:"crashes"`
	MaxAttempts int               `json:"maxAttempts"`
	Token       uint64            `json:"token"`
	LeaseEnd    time.Time         `json:"leaseEnd,omitzero"`
	Died        time.Time         `json:"died,omitzero"`
	Reason      string            `json:"reason,omitempty"`
}

func (m *messageJSON) setBody(body []byte) {
	if utf8.Valid(body) {
		s := string(body)
		m.Body = &s
		return
	}
	m.BodyBase64 = body
}

// recordJSON returns a record as JSON: with its error instead of its body if it cannot be read, and
// with its partition unless that is nil.
func recordJSON(r *durable.Record, partition *int) any {
	m := messageJSON{
		ID: r.ID, State: stateName(r.State), Headers: r.Headers, Enqueued: timeJSON(r.Enqueued), Due: timeJSON(r.Due),
		Attempts: r.Attempts, Crashes: r.Crashes, MaxAttempts: r.MaxAttempts, Token: r.Token, Reason: r.Reason,
		LeaseEnd: timeJSON(r.LeaseEnd), Died: timeJSON(r.Died), ExpireAt: timeJSON(r.ExpireAt),
	}
	fault := ""
	if r.Err != nil {
		fault = r.Err.Error()
	} else {
		m.setBody(r.Body)
	}
	return struct {
		messageJSON
		Partition *int   `json:"partition,omitempty"`
		Error     string `json:"error,omitempty"`
	}{m, partition, fault}
}

// timeJSON returns a time that JSON can represent. The last year in JSON is 9999, and due times may
// be later: such a time becomes the end of 9999.
func timeJSON(t time.Time) time.Time {
	if t.Year() <= 9999 {
		return t
	}
	if last := time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC); t.After(last) {
		return last
	}
	return t.UTC() // the year is 10000 only in the local zone
}

func deliveryJSON(d *durable.Delivery) messageJSON {
	m := messageJSON{
		ID: d.ID, Headers: d.Headers, Enqueued: timeJSON(d.Enqueued), Due: timeJSON(d.Due),
		Attempts: d.Attempts, Crashes: d.Crashes, MaxAttempts: d.MaxAttempts, Token: d.Token, ExpireAt: timeJSON(d.ExpireAt),
	}
	m.setBody(d.Body)
	return m
}

func stateName(s durable.State) string {
	switch s {
	case durable.StateScheduled:
		return "scheduled"
	case durable.StateLeased:
		return "claimed" // by a consumer, ahead of its due time
	case durable.StateFiring:
		return "delivering"
	case durable.StateDead:
		return "dead"
	}
	return fmt.Sprintf("state %d", s)
}

// formatTime formats a time, with the time from now on this machine's clock in brackets.
func formatTime(t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case !t.Before(driver.Never.Time()):
		return "never"
	}
	return t.Format("2006-01-02 15:04:05.000 MST") + " (" + relative(time.Until(t)) + ")"
}

func relative(d time.Duration) string {
	if d < 0 {
		return formatDuration(-d) + " ago"
	}
	if d == math.MaxInt64 { // time.Until saturates at this value
		return "in 292 years or more"
	}
	return "in " + formatDuration(d)
}

// formatDuration formats a duration with about three significant digits.
func formatDuration(d time.Duration) string {
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	for unit := time.Second; unit > time.Nanosecond; unit /= 10 {
		if d >= unit {
			return d.Round(max(unit/100, 1)).String()
		}
	}
	return d.String()
}

// preview returns the first bytes of a text, at most most, on one line and without control
// characters.
func preview(s string, most int) string {
	short := s
	if len(short) > most {
		short = short[:most]
		for end := most; end > most-utf8.UTFMax; end-- { // not within a character
			if utf8.RuneStart(s[end]) {
				short = s[:end]
				break
			}
		}
	}
	quoted := strconv.Quote(short)
	quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(s) > most {
		quoted += "…"
	}
	return quoted
}
