// Package browsertest tests the pages of package debug and of package durable/debug in a real
// browser. It is a module of its own, so users of the library do not need the packages that drive
// the browser.
//
// The tests are skipped if no Chromium is found, unless TIMINGWHEEL_REQUIRE_CHROMIUM is 1. Those
// with Redis are skipped if no redis-server is found, unless TIMINGWHEEL_REQUIRE_REDIS is 1. With
// TIMINGWHEEL_SCREENSHOTS set to a directory they also write the pictures of the documentation
// there:
//
//	TIMINGWHEEL_SCREENSHOTS=$PWD/docs go test -run TestScreenshots ./debug/browsertest
package browsertest
