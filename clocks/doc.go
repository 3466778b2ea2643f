// Package clocks has the clock interfaces of other packages on a timing wheel, so that code that
// takes such a clock and code that takes the wheel run on one clock. In a test, one Advance then
// moves both.
//
//   - Package jonboulle implements Clock of github.com/jonboulle/clockwork, on a Manual wheel and
//     on a running one. Its timers and tickers are timers of the wheel.
//   - Package benbjohnson implements Clock of github.com/benbjohnson/clock on a Manual wheel. The
//     timers of that package are structs that only its own Mock can make, so they stay in a Mock
//     whose time moves with the wheel's.
package clocks
