// Package browsertest holds the test of the page of package debug in a real browser. It is a module
// of its own, so that nobody who uses the library needs what drives the browser.
//
// The test is skipped where no Chromium is found, unless TIMINGWHEEL_REQUIRE_CHROMIUM is 1. With
// TIMINGWHEEL_SCREENSHOTS set to a directory it also writes the pictures of the documentation
// there:
//
//	TIMINGWHEEL_SCREENSHOTS=$PWD/docs go test -run TestScreenshots ./debug/browsertest
package browsertest
