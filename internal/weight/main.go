// Command weight counts what a reader of this repository has to read, and keeps the counts from
// growing. It runs in the root of the repository:
//
//	go run ./internal/weight            print all counts
//	go run ./internal/weight -check     fail if a count is above its limit
//	go run ./internal/weight -update    lower the limits to the counts, then check
//
// The quantities of a module:
//
//	files     Go files except tests and testdata, for all platforms and build tags
//	lines     lines of these files, with comments and empty lines
//	tests     lines of the files *_test.go
//	exported  exported names of the packages that programs can import: functions, constants,
//	          variables, types, and the fields and methods of these types, with those that an
//	          unexported embedded type adds
//
// A "tool" is a command below a folder internal, and not part of its module. "root" is the root
// package. Its lines include the packages of its module that it needs. Only the root package has a
// limit of tests.
//
// Types with more than 15 fields or 20 methods are counted, with what they embed. Exempt are fields
// of Stats, exported methods of TimingWheel, and the public packages beside the root package.
// "markdown words" are counted by [prose.Words].
// limits.txt has a line for each quantity. A limit only goes down: the check fails if it is higher
// than in any commit of the file. -update gives a quantity of a new module or tool its first limit,
// and drops those that are gone. A type gets no limit: new types are small.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"slices"

	"github.com/timingwheel-go/timingwheel/internal/prose"
)

func main() {
	check := flag.Bool("check", false, "fail if a count is above its limit")
	update := flag.Bool("update", false, "lower the limits to the counts, then check")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*check, *update); err != nil {
		log.Fatal(err)
	}
}

func run(check, update bool) error {
	r, err := load(".")
	words, errWords := prose.Words(".")
	if err := errors.Join(err, errWords); err != nil {
		return err
	}
	counts := r.count(words)
	if check || update {
		return checkLimits(counts, update)
	}
	fmt.Print(format(counts))
	for _, name := range slices.Sorted(maps.Keys(words)) {
		fmt.Printf(lineFormat, "words of "+name, words[name])
	}
	return nil
}
