package wheeldebug_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/timingwheel-go/timingwheel"
	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// The page has its own address, which only this machine can reach.
func ExampleHandler() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	wheels := &wheeldebug.Handler{}
	if err := errors.Join(wheels.Add("requests", tw), wheels.Add("default", timingwheel.Default())); err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/debug/timingwheel/", wheels)
	listener, err := net.Listen("tcp", "localhost:0") // a program uses a fixed port
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	response, err := http.Get("http://" + listener.Addr().String() + "/debug/timingwheel/")
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	fmt.Println(response.Status, response.Header.Get("Content-Type"))
	// Output: 200 OK text/html; charset=utf-8
}

// A program requests the JSON from the same address.
func ExampleDocument() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()
	for range 3 {
		tw.AfterFunc(100*time.Millisecond, func() {})
	}
	wheels := &wheeldebug.Handler{}
	if err := wheels.Add("requests", tw); err != nil {
		log.Fatal(err)
	}

	r := httptest.NewRequest(http.MethodGet, "/debug/timingwheel/?wheel=requests", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	wheels.ServeHTTP(w, r)
	var doc wheeldebug.Document
	if err := json.NewDecoder(w.Body).Decode(&doc); err != nil {
		log.Fatal(err)
	}
	for _, entry := range doc.Wheels {
		fmt.Println(entry.Name, "has", entry.Pending, "pending timers")
	}
	fmt.Println("due in 100 ms, by level 0:", doc.Wheel.Levels[0].Cells[100])
	next := doc.Wheel.Next[0]
	fmt.Println("next expiration:", next.Timers, "timers in", time.Duration(next.InNs))
	// Output:
	// requests has 3 pending timers
	// due in 100 ms, by level 0: 3
	// next expiration: 3 timers in 100ms
}

// The handler has no authentication. A program adds its own in front.
func ExampleHandler_guarded() {
	wheels := &wheeldebug.Handler{}
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "operator" || password != "of the program's choice" {
			w.Header().Set("WWW-Authenticate", `Basic realm="debug"`)
			http.Error(w, "authentication required", http.StatusUnauthorized)
			return
		}
		wheels.ServeHTTP(w, r)
	})
	w := httptest.NewRecorder()
	guarded.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/timingwheel/", nil))
	fmt.Println(w.Code)
	// Output: 401
}
