package watch

import (
	"bytes"
	"context"
	"reflect"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests read labels from the goroutine profile of the whole process, so they do not run in
// parallel with others.

var labelsLine = regexp.MustCompile(`(?m)^# labels: (.*)$`)

// myLabels returns the labels of the calling goroutine, or "" if it has none.
//
//go:noinline
func myLabels(t *testing.T) string {
	t.Helper()
	var profile bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	var all []string
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if !strings.Contains(record, "watch.myLabels+") {
			continue
		}
		labels := ""
		if m := labelsLine.FindStringSubmatch(record); m != nil {
			labels = m[1]
		}
		all = append(all, labels)
	}
	require.Len(t, all, 1)
	return all[0]
}

// withLabels runs f on a new goroutine that has the labels of a request, and waits for f.
func withLabels(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.Do(context.Background(), pprof.Labels("request", "1"), func(context.Context) { f() })
	}()
	<-done
}

type holder struct{}

func (*holder) hold() {}

func pcOf(f func()) uintptr { return reflect.ValueOf(f).Pointer() }

func TestLabelsBeforeDuringAndAfterACallback(t *testing.T) {
	service := pprof.WithLabels(context.Background(), pprof.Labels("service", "shop"))
	leaked := pprof.WithLabels(context.Background(), pprof.Labels("leaked", "yes"))
	const (
		callback = `"callback":"github.com/timingwheel-go/timingwheel/internal/watch.(*holder).hold", `
		shop     = `"service":"shop"`
		wheel    = `"timingwheel":"w"`
	)
	for name, c := range map[string]struct {
		others               context.Context
		own                  bool
		before, inside, then string
	}{
		"own": {nil, true,
			"{" + wheel + "}", "{" + callback + wheel + "}", "{" + wheel + "}"},
		"foreign": {nil, false,
			"{" + wheel + "}", "{" + callback + wheel + "}", ""},
		"own, others": {service, true,
			"{" + shop + ", " + wheel + "}", "{" + callback + shop + ", " + wheel + "}", "{" + shop + ", " + wheel + "}"},
		"foreign, others": {service, false,
			"{" + shop + ", " + wheel + "}", "{" + callback + shop + ", " + wheel + "}", "{" + shop + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLabels("w", c.others, c.own)
			withLabels(func() {
				l.Own()
				assert.Equal(t, c.before, myLabels(t), "the labels of the request must be replaced")
				for range 2 {
					l.Begin(pcOf(new(holder).hold))
					assert.Equal(t, c.inside, myLabels(t))
					pprof.SetGoroutineLabels(leaked)
					l.End()
					assert.Equal(t, c.then, myLabels(t))
				}
			})
		})
	}
}

func TestLabelsAreRestoredAfterPanic(t *testing.T) {
	l := NewLabels("w", nil, true)
	withLabels(func() {
		assert.Panics(t, func() {
			l.Begin(pcOf(new(holder).hold))
			defer l.End()
			panic("over")
		})
		assert.Equal(t, `{"timingwheel":"w"}`, myLabels(t))
	})
}

func TestGoroutineStartedByCallbackInheritsItsLabels(t *testing.T) {
	l := NewLabels("w", nil, true)
	withLabels(func() {
		l.Begin(pcOf(new(holder).hold))
		inherited := make(chan string)
		go func() { inherited <- myLabels(t) }()
		assert.Contains(t, <-inherited, "(*holder).hold")
		l.End()
	})
}

func TestNilLabelsOwnChangesNothing(t *testing.T) {
	withLabels(func() {
		(*Labels)(nil).Own()
		assert.Equal(t, `{"request":"1"}`, myLabels(t))
	})
}

func TestFuncNameIsThatOfStackTraces(t *testing.T) {
	const pkg = "github.com/timingwheel-go/timingwheel/internal/watch."
	closure := func() { runtime.Gosched() }
	for want, pc := range map[string]uintptr{
		"unknown":                                     0,
		pkg + "TestFuncNameIsThatOfStackTraces":       reflect.ValueOf(TestFuncNameIsThatOfStackTraces).Pointer(),
		pkg + "TestFuncNameIsThatOfStackTraces.func1": pcOf(closure),
		pkg + "(*holder).hold":                        pcOf(new(holder).hold),
		"runtime.GC":                                  pcOf(runtime.GC),
		"strings.(*Builder).String":                   reflect.ValueOf((*strings.Builder).String).Pointer(),
	} {
		assert.Equal(t, want, FuncName(pc))
	}
}

func BenchmarkLabels(b *testing.B) {
	l := NewLabels("w", nil, true)
	pc := pcOf(new(holder).hold)
	b.ReportAllocs()
	for b.Loop() {
		l.Begin(pc)
		l.End()
	}
	pprof.SetGoroutineLabels(context.Background())
}
