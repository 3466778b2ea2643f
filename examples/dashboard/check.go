package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"go.uber.org/atomic"

	"github.com/timingwheel-go/timingwheel/wheeldebug"
)

// check compares the figures of the page with the counters of the loads. It returns a line for each
// wheel.
func check(page string, armed map[string]*atomic.Uint64) (lines []string, err error) {
	client := &http.Client{Timeout: 10 * time.Second}
	least := make(map[string]uint64)
	for name, n := range armed {
		least[name] = n.Load()
	}
	first, err := fetch(client, page, "")
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, entry := range first.Wheels {
		doc, err := fetchFresh(client, page, entry.Name, least[entry.Name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w := doc.Wheel
		lines = append(lines, fmt.Sprintf("%-12s %9s pending, %10s armed, %9s fired, %9s stopped, %9s postponed, p99 of lateness %v",
			w.Name, comma(w.Pending), comma(w.Counters["armed"]), comma(w.Counters["fired"]), comma(w.Counters["stopped"]), comma(w.Counters["postponed"]),
			time.Duration(w.Lateness.P99Ns)))
		errs = append(errs, checkSum(w))
		if n, ok := armed[w.Name]; ok && (w.Counters["armed"] < least[w.Name] || w.Counters["armed"] > n.Load()) {
			errs = append(errs, fmt.Errorf("wheel %s: %d armed; there must be from %d to %d", w.Name, w.Counters["armed"], least[w.Name], n.Load()))
		}
	}
	return lines, errors.Join(errs...)
}

// checkSum checks that the parts of a wheel on the page add up to the number of pending timers.
func checkSum(w *wheeldebug.Wheel) error {
	sum := w.Due + w.Moving + w.Unseen
	for _, l := range w.Levels {
		for _, n := range l.Cells {
			sum += n
		}
	}
	if sum != w.Pending || w.Pending == 0 {
		return fmt.Errorf("wheel %s: %d pending, but the parts have %d", w.Name, w.Pending, sum)
	}
	return nil
}

func comma[T int | uint64](n T) string { return humanize.Comma(int64(n)) }

// fetchFresh fetches the page of a wheel until its counter of armed timers is at least least,
// because the page may return a cached answer for some time. It gives up after two seconds.
func fetchFresh(client *http.Client, page, wheel string, least uint64) (doc wheeldebug.Document, err error) {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		doc, err = fetch(client, page, wheel)
		if err != nil || doc.Wheel.Counters["armed"] >= least || time.Now().After(end) {
			return doc, err
		}
	}
}

func fetch(client *http.Client, page, wheel string) (wheeldebug.Document, error) {
	var doc wheeldebug.Document
	query := url.Values{"format": {"json"}}
	if wheel != "" {
		query.Set("wheel", wheel)
	}
	response, err := client.Get(page + "?" + query.Encode())
	if err != nil {
		return doc, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		return doc, fmt.Errorf("the page answered %s, %s for wheel %q", response.Status, response.Header.Get("Content-Type"), wheel)
	}
	err = json.NewDecoder(response.Body).Decode(&doc)
	if err == nil && doc.Wheel == nil {
		err = fmt.Errorf("the page has no wheel %q", wheel)
	}
	return doc, err
}
