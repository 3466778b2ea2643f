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

	"github.com/timingwheel-go/timingwheel/debug"
)

// check asks the page for each of its wheels and compares what it says with what the loads have
// counted. It returns a line for each wheel.
func check(page string, armed map[string]*atomic.Uint64) (lines []string, err error) {
	client := &http.Client{Timeout: 10 * time.Second}
	least := make(map[string]uint64)
	for name, n := range armed {
		least[name] = n.Load()
	}
	time.Sleep(time.Second) // the page may have an answer of a moment ago, which would know of fewer
	first, err := fetch(client, page, "")
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, entry := range first.Wheels {
		doc, err := fetch(client, page, entry.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w := doc.Wheel
		lines = append(lines, fmt.Sprintf("%-12s %9s pending, %10s armed, %9s fired, %9s stopped, %9s postponed, 99 %% late by at most %v",
			w.Name, comma(w.Pending), comma(w.Counters["armed"]), comma(w.Counters["fired"]), comma(w.Counters["stopped"]), comma(w.Counters["postponed"]),
			time.Duration(w.Lateness.P99Ns)))
		errs = append(errs, judge(w))
		if n, ok := armed[w.Name]; ok && (w.Counters["armed"] < least[w.Name] || w.Counters["armed"] > n.Load()) {
			errs = append(errs, fmt.Errorf("wheel %s: %d armed, should be from %d to %d", w.Name, w.Counters["armed"], least[w.Name], n.Load()))
		}
	}
	return lines, errors.Join(errs...)
}

// judge says what is wrong with what the page says of a wheel.
func judge(w *debug.Wheel) error {
	sum := w.Due + w.Moving + w.Unseen
	for _, l := range w.Levels {
		for _, n := range l.Cells {
			sum += n
		}
	}
	if sum != w.Pending || w.Pending == 0 {
		return fmt.Errorf("wheel %s: %d pending, %d in its slots and beside them", w.Name, w.Pending, sum)
	}
	return nil
}

func comma[T int | uint64](n T) string { return humanize.Comma(int64(n)) }

func fetch(client *http.Client, page, wheel string) (debug.Document, error) {
	var doc debug.Document
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
		return doc, fmt.Errorf("the page says %s, %s for wheel %q", response.Status, response.Header.Get("Content-Type"), wheel)
	}
	err = json.NewDecoder(response.Body).Decode(&doc)
	if err == nil && doc.Wheel == nil {
		err = fmt.Errorf("the page has no wheel %q", wheel)
	}
	return doc, err
}
