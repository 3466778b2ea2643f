package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// delay is the source of the delays. It becomes a file of package runtime.
//
//go:embed delay.go.txt
var delay string

// An edit inserts text after every match of an anchor in a file of GOROOT/src.
type edit struct {
	file, anchor, insert string
}

// edits are the places of a delay.
var edits = []edit{
	// Main goroutine: initialization has ended.
	{"runtime/proc.go", `(?m)^func main\(\) \{(?s:.*?)\n\tunlockOSThread\(\)\n`, "\tperturbInit()\n"},
	// A goroutine has been chosen to run.
	{"runtime/proc.go", `(?m)^func execute\(.*\{\n`, "\tperturbThread()\n"},
	// A goroutine has been woken and runs again. A worker of the collector must not be preempted.
	{"runtime/proc.go", `(?m)^func gopark\((?s:.*?)\n\tmcall\(park_m\)\n`, "\tif reason != waitReasonGCWorkerIdle {\n\t\tperturbStep()\n\t}\n"},
	// A goroutine has woken another.
	{"runtime/proc.go", `(?m)^func goready\((?s:.*?)\n\t\}\)\n`, "\tperturbStep()\n"},
	// A goroutine has started another.
	{"runtime/proc.go", `(?m)^func newproc\((?s:.*?)\n\t\}\)\n`, "\tperturbStep()\n"},
	// The order of goroutines in the queue of a P is random, as under the race detector.
	{"runtime/proc.go", `(?m)^const randomizeScheduler = raceenabled`, " || true"},
	{"internal/sync/mutex.go", `(?m)^func \(m \*Mutex\) (Lock|TryLock|Unlock)\(.*\{\n`, "\tperturb()\n"},
	// The methods of the atomic types. The functions for plain variables are compiled to
	// instructions.
	{"sync/atomic/type.go", `(?m)^func \(x \*[^{]*\{`, " perturb(); "},
}

// overlay writes changed copies of files of goroot, and the file overlay.json that makes the go
// command use them, into dir. It returns the name of overlay.json.
func overlay(goroot, dir string) (string, error) {
	sources := map[string]string{
		"runtime/perturb.go":       delay,
		"sync/atomic/perturb.go":   "package atomic\n\nfunc perturb()\n",
		"internal/sync/perturb.go": "package sync\n\nimport _ \"unsafe\"\n\n//go:linkname perturb\nfunc perturb()\n",
	}
	for _, e := range edits {
		if err := e.apply(goroot, sources); err != nil {
			return "", err
		}
	}
	var replace struct{ Replace map[string]string }
	replace.Replace = map[string]string{}
	for name, source := range sources {
		path := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			return "", err
		}
		replace.Replace[filepath.Join(goroot, "src", filepath.FromSlash(name))] = path
	}
	data, err := json.MarshalIndent(replace, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}

// apply makes the edit in sources, into which it reads the file if an earlier edit has not.
func (e edit) apply(goroot string, sources map[string]string) error {
	source, ok := sources[e.file]
	if !ok {
		data, err := os.ReadFile(filepath.Join(goroot, "src", filepath.FromSlash(e.file)))
		if err != nil {
			return err
		}
		source = string(data)
	}
	anchor := regexp.MustCompile(e.anchor)
	if !anchor.MatchString(source) {
		return fmt.Errorf("%s of %s has no match for the anchor %s: adapt internal/perturb to this Go", e.file, goroot, e.anchor)
	}
	sources[e.file] = anchor.ReplaceAllString(source, "${0}"+e.insert)
	return nil
}
