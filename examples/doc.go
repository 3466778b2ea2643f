// Package examples tests the gallery of examples in README.md.
package examples
