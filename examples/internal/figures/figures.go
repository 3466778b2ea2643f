// Package figures prints the figures of the examples.
package figures

import (
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table returns an empty table whose Render prints to w. Columns from first to last are aligned
// right.
func Table(w io.Writer, first, last int, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	var right []table.ColumnConfig
	for n := first; n <= last; n++ {
		right = append(right, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	return t
}

// Comma formats 1234567 as 1,234,567.
func Comma(n int) string { return humanize.Comma(int64(n)) }

// Plural formats a number with a noun.
func Plural(n int, noun string) string { return Comma(n) + " " + english.PluralWord(n, noun, "") }

// Millis formats a duration in milliseconds.
func Millis(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}
