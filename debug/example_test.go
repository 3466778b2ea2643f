package debug_test

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
	"github.com/timingwheel-go/timingwheel/debug"
)

// The page has an address of its own that only this machine can reach.
func ExampleHandler() {
	tw, err := timingwheel.New(timingwheel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()

	wheels := &debug.Handler{}
	if err := errors.Join(wheels.Add("requests", tw), wheels.Add("default", timingwheel.Default())); err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("/debug/timingwheel/", wheels)
	listener, err := net.Listen("tcp", "localhost:0") // in a program: a fixed port
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

// A program asks for the JSON at the same address.
func ExampleDocument() {
	tw, err := timingwheel.New(timingwheel.Options{Manual: true})
	if err != nil {
		log.Fatal(err)
	}
	defer tw.Stop()
	for range 3 {
		tw.AfterFunc(100*time.Millisecond, func() {})
	}
	wheels := &debug.Handler{}
	if err := wheels.Add("requests", tw); err != nil {
		log.Fatal(err)
	}

	r := httptest.NewRequest(http.MethodGet, "/debug/timingwheel/?wheel=requests", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	wheels.ServeHTTP(w, r)
	var doc debug.Document
	if err := json.NewDecoder(w.Body).Decode(&doc); err != nil {
		log.Fatal(err)
	}
	fmt.Println(doc.Wheel.Name, "has", doc.Wheel.Pending, "pending,", doc.Wheel.Levels[0].Cells[100], "of them in 100 ms")
	// Output: requests has 3 pending, 3 of them in 100 ms
}

// The handler has no authentication. A program puts its own in front.
func ExampleHandler_guarded() {
	wheels := &debug.Handler{}
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
