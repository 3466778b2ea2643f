package prose

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files with measured figures. Commands write their tables.
const (
	targets    = "docs/benchmarks.md"        // written by benchmarks/cmd/ratios
	comparison = "docs/benchmarks/README.md" // written by benchmarks/cmd/report
)

// quotes are figures of README.md and of pages in docs. Each group of a pattern quotes a cell of a
// table.
var quotes = []struct {
	file, pattern string
	source        string
	cells         []cell
}{
	{"README.md", `arm and stop a timer, 1M pending \| (.*?) \| (.*?) \|`, targets,
		[]cell{{"Figures", "ArmStop/pending=1M std", "baseline figure"}, {"Figures", "ArmStop/pending=1M std", "wheel"}}},
	{"README.md", `memory of a pending timer \| (.*?) \| (.*?) \|`, targets,
		[]cell{{"Figures", "Fill/pending=10M B/timer", "baseline figure"}, {"Figures", "Fill/pending=10M B/timer", "wheel"}}},
	{"README.md", `until the last has run \| (.*?) \| (.*?) \|`, targets,
		[]cell{{"Figures", "Burst/pending=1M", "baseline figure"}, {"Figures", "Burst/pending=1M", "wheel"}}},
	{"docs/semantics.md", `starts (\S+ ms) after its deadline in the median and (\S+ ms) in`, comparison,
		[]cell{{"Spread", "`wheel`", "50%"}, {"Spread", "`wheel`", "99%"}}},
}

// cell names a cell of a table by the heading above it, the beginning of its row and its column.
type cell struct{ heading, row, column string }

// compared are the rows of the comparison in README.md, and the names of their implementations in
// the measured tables.
var compared = map[string]string{
	"this library": "`wheel`", "package `time`": "`std`", "RussellLuo/timingwheel": "`russellluo`", "antlabs/timer": "`antlabs`",
	"rfyiamcool/go-timewheel": "`rfyiamcool`", "ouqiang/timewheel": "`ouqiang`", "go-zero": "`gozero`", "gost": "`gost`",
}

// columnsOf are the measured columns of the comparison in README.md.
var columnsOf = map[string]cell{
	"allocations":                   {"ArmStop", "", "allocations"},
	"bytes":                         {"Fill", "", "memory, 1M"},
	"idle wake-ups a second":        {"Idle", "", "wake-ups per second"},
	"median lateness, busy machine": {"BusyStream", "", "50%, 16 busy"},
}

func TestQuotedFiguresAreTheMeasuredOnes(t *testing.T) {
	t.Parallel()
	tables := map[string]tables{targets: tablesOf(t, targets), comparison: tablesOf(t, comparison)}
	for _, q := range quotes {
		text := strings.Join(strings.Fields(read(t, q.file)), " ")
		if strings.HasPrefix(q.pattern, "(?m)") {
			text = read(t, q.file)
		}
		groups := regexp.MustCompile(q.pattern).FindStringSubmatch(text)
		if assert.NotNil(t, groups, "%s: no text like %s", q.file, q.pattern) {
			for i, c := range q.cells {
				assertQuoted(t, tables[q.source].find(t, c), groups[i+1], "%s: %v", q.file, c)
			}
		}
	}
}

func TestComparisonOfREADMEIsTheMeasuredOne(t *testing.T) {
	t.Parallel()
	measured, rows := tablesOf(t, comparison), tablesOf(t, "README.md")
	for name, implementation := range compared {
		for column, source := range columnsOf {
			got := rows.find(t, cell{"Comparison", name, column})
			source.row = implementation
			if got == "–" {
				continue // not measured, with the reason in the measured table
			}
			assertQuoted(t, measured.find(t, source), got, "%s: %s", name, column)
		}
		early := measured.find(t, cell{"Mistakes", implementation, "early"})
		switch got := rows.find(t, cell{"Comparison", name, "early timers"}); got {
		case "none":
			assert.Equal(t, "0", early, name)
		case "some":
			assert.Contains(t, measured.find(t, cell{"Mistakes", implementation, "in other workloads"}), "early", name)
		default:
			assert.Contains(t, early, "("+got+")", name)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// tables are the tables of a Markdown file: rows of cells by the heading above them.
type tables map[string][][]string

func tablesOf(t *testing.T, name string) tables {
	found, heading := tables{}, ""
	for _, line := range strings.Split(read(t, name), "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			heading = title
		}
		if strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			found[heading] = append(found[heading], cells)
		}
	}
	return found
}

// find returns a cell. A row is named by the beginning of its first cell, or by the first cell and
// the beginnings of later ones, separated by spaces.
func (x tables) find(t *testing.T, c cell) string {
	t.Helper()
	rows := x[c.heading]
	require.NotEmpty(t, rows, "no table below %q", c.heading)
	column := -1
	for i, title := range rows[0] {
		if title == c.column {
			column = i
		}
	}
	require.GreaterOrEqual(t, column, 0, "no column %q below %q", c.column, c.heading)
	for _, row := range rows[2:] {
		if strings.HasPrefix(row[0], c.row) {
			return row[column]
		}
		name, more, _ := strings.Cut(c.row, " ")
		if row[0] == name && more != "" && (strings.HasPrefix(row[1], more) || row[2] == more) {
			return row[column]
		}
	}
	require.Fail(t, "no such row", "%q below %q", c.row, c.heading)
	return ""
}

// assertQuoted checks that a quote is a measured figure, rounded to the digits of the quote.
func assertQuoted(t *testing.T, measured, quote string, format string, args ...any) {
	t.Helper()
	where := fmt.Sprintf(format, args...)
	want, unit, ok := figure(measured)
	if !ok {
		assert.Equal(t, measured, quote, where)
		return
	}
	got, gotUnit, ok := figure(quote)
	if !assert.True(t, ok, "%s: %q is no figure", where, quote) {
		return
	}
	if unit != gotUnit && gotUnit != "" {
		want, got = want*scale[unit], got*scale[gotUnit]
	}
	digits := strings.TrimLeft(strings.NewReplacer(",", "", ".", "").Replace(number.FindString(quote)), "0")
	half := math.Pow(10, math.Floor(math.Log10(math.Max(got, 1e-12)))-float64(len(digits))+1) / 2
	if got == 0 {
		half = 0
	}
	assert.InDelta(t, want, got, half*1.0001, "%s: quoted %q, measured %q", where, quote, measured)
}

var (
	number = regexp.MustCompile(`^[0-9][0-9,]*(\.[0-9]+)?`)
	scale  = map[string]float64{"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "B": 1, "": 1}
)

// figure splits a figure such as "1.5 ms" or "1.5ms (0.3)" into number and unit.
func figure(text string) (value float64, unit string, ok bool) {
	text, _, _ = strings.Cut(text, " (")
	digits := number.FindString(text)
	unit = strings.TrimSpace(strings.TrimPrefix(text, digits))
	value, err := strconv.ParseFloat(strings.ReplaceAll(digits, ",", ""), 64)
	_, known := scale[unit]
	return value, unit, err == nil && known
}

func TestQuoteIsComparedToItsDigits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		measured, quote string
		ok              bool
	}{
		{"93.00ns", "93 ns", true}, {"93.6ns", "93 ns", false}, {"2.601s", "2.6 s", true}, {"2.66s", "2.6 s", false},
		{"5.84 s (421.89)", "5.84 s", true}, {"1959", "1,959", true}, {"6.25", "6", true}, {"220 B (1.68)", "220", true},
		{"timeout", "timeout", true}, {"timeout", "3 s", false}, {"57.34ms", "0.057 s", true}, {"5", "0", false}, {"0", "0", true},
	} {
		fake := &testing.T{}
		assertQuoted(fake, test.measured, test.quote, "")
		assert.Equal(t, test.ok, !fake.Failed(), "%v", test)
	}
}
