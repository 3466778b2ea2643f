// Package clocks implements the clock interfaces of other packages on a timing wheel. Code that
// takes such a clock and code that takes the wheel then use the same clock, and in a test one
// Advance moves the time for both. The package has no code of its own, only subpackages:
//
//   - Package wheelclockwork implements the Clock interface of github.com/jonboulle/clockwork on a
//     Manual wheel and on a running wheel. Its timers and tickers are timers on the wheel.
//   - Package wheelclock implements the Clock interface of github.com/benbjohnson/clock on a Manual
//     wheel. The interface returns structs that only benbjohnson/clock can make. The timers
//     therefore belong to its Mock, whose time moves with the wheel's.
package clocks
