// Package adopters shows how programs that exist use the timing wheel for their connections. Each
// of its files is one adopter, with a test and a benchmark beside the standard way.
package adopters
