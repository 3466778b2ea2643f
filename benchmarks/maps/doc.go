// Package maps compares concurrent maps as the home of package keyed's timers: what a Set, Touch, Delete and expiry of a key cost, and
// what a key takes in memory, with each of them. The figures, and the choice, are in docs/internals/keyed.md.
//
//	go test -run "^$" -bench "Maps$" -benchtime 200000x ./benchmarks/maps
//	go test -run "^$" -bench MapsFill -benchtime 2x ./benchmarks/maps
package maps
