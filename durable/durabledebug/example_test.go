package durabledebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/durabledebug"
	"github.com/timingwheel-go/timingwheel/durable/memstore"
)

// The page is for operators: here it may replay and delete dead letters, so the address needs a
// guard or a port that only operators reach.
func ExampleHandler() {
	ctx := context.Background()
	q, err := durable.Open(ctx, memstore.New(memstore.Options{}), durable.Options{Queue: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Enqueue(ctx, durable.Message{Delay: 30 * time.Minute}); err != nil {
		log.Fatal(err)
	}

	queues := &durabledebug.Handler{Actions: true}
	if err := queues.Add("orders", q); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/queues/", queues)

	page := httptest.NewRecorder()
	mux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/debug/queues/", nil))
	fmt.Println(page.Code, page.Header().Get("Content-Type"))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/queues/?format=json", nil))
	var doc struct {
		Queue struct {
			Name    string
			Pending int64
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&doc); err != nil {
		log.Fatal(err)
	}
	fmt.Println(doc.Queue.Name, "has", doc.Queue.Pending, "pending")
	// Output:
	// 200 text/html; charset=utf-8
	// orders has 1 pending
}
