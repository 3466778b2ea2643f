//go:build gc && !timingwheel_nolinkname

package timingwheel

import "unsafe" // for go:linkname

// A goroutine's labels can be set by package runtime/pprof, but not read, so what was there before could not be put back.
// These two functions of the runtime are what that package uses. The runtime keeps both for packages outside it
// (go.dev/issue/67401). The build tag is the way out should a linker refuse them one day.

//go:linkname currentLabels runtime/pprof.runtime_getProfLabel
func currentLabels() unsafe.Pointer

//go:linkname restoreLabels runtime/pprof.runtime_setProfLabel
func restoreLabels(labels unsafe.Pointer)
