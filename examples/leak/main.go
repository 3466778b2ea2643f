// Leak is a proxy that forgets to stop some of its timers. A profile of the pending timers finds
// the leak. Each request arms a timeout and stops it when the backend has answered. A request that
// the cache answers returns early and does not stop its timeout. The program still works, because
// these timeouts do nothing when they fire, but each keeps its request in memory for ten minutes.
//
//	go run ./examples/leak -o timers.pb.gz
//	go tool pprof -top timers.pb.gz
//
// The wheel samples one timer in 16. A server uses 512 and serves the profile with package
// wheeldebug.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/timingwheel-go/timingwheel"
)

const (
	sessions = 500
	requests = 20_000
	rate     = 16

	idleTimeout    = time.Hour
	requestTimeout = 10 * time.Minute
)

func main() {
	file := flag.String("o", filepath.Join(os.TempDir(), "timers.pb.gz"), "write the profile to this `file`")
	flag.Parse()
	if err := run(*file, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(file string, out io.Writer) error {
	tw, err := timingwheel.New(timingwheel.Options{Name: "proxy", ProfileRate: rate})
	if err != nil {
		return err
	}
	defer tw.Stop()
	p := &proxy{tw: tw, cache: map[int]string{}}
	for range sessions {
		p.openSession()
	}
	for n := range requests {
		p.serve(n % 1000 * (n % 7)) // many keys repeat
	}
	if err := writeProfile(tw, file); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d sessions are open and no request is in flight, but %d timers are pending\n", sessions, tw.Len())
	fmt.Fprintf(out, "go tool pprof -top %s\n", file)
	return nil
}

func writeProfile(tw *timingwheel.TimingWheel, file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	return tw.WriteProfile(f)
}

type proxy struct {
	tw       *timingwheel.TimingWheel
	cache    map[int]string
	sessions []*timingwheel.FuncTimer
}

// openSession arms a timer that lives as long as the session. This is correct.
func (p *proxy) openSession() {
	p.sessions = append(p.sessions, p.tw.NewFuncTimer(idleTimeout, func() {}))
}

func (p *proxy) serve(key int) string {
	if answer, ok := p.cached(key); ok {
		return answer
	}
	return p.fetch(key)
}

// cached looks up the cache, which may be slow. It does not stop the timeout on a hit: the leak.
func (p *proxy) cached(key int) (string, bool) {
	timeout := p.tw.AfterFunc(requestTimeout, func() { log.Printf("%d timed out in the cache", key) })
	if answer, ok := p.cache[key]; ok {
		return answer, true
	}
	timeout.Stop()
	return "", false
}

// fetch asks the backend. It always stops its timeout.
func (p *proxy) fetch(key int) string {
	timeout := p.tw.AfterFunc(requestTimeout, func() { log.Printf("%d timed out", key) })
	defer timeout.Stop()
	p.cache[key] = fmt.Sprint("answer ", key)
	return p.cache[key]
}
