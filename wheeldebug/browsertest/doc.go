// Package browsertest tests the pages of package wheeldebug and of package durable/durabledebug in
// a real browser. It is a separate module, so users of the library do not need the packages that
// drive the browser.
//
// The tests are skipped if no Chromium is found, unless TIMINGWHEEL_REQUIRE_CHROMIUM is 1. Tests
// with Redis are skipped if no redis-server is found, unless TIMINGWHEEL_REQUIRE_REDIS is 1. If
// TIMINGWHEEL_SCREENSHOTS is a directory, TestScreenshots writes the pictures of the documentation
// to it:
//
//	TIMINGWHEEL_SCREENSHOTS=$PWD/docs go -C wheeldebug/browsertest test -run TestScreenshots .
package browsertest
