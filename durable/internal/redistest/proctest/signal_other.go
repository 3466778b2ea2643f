//go:build !unix

package proctest

import "os"

// CanSignal reports whether the system has the signals that faults need.
const CanSignal = false

// Pause and Continue do not exist, so nothing may send them.
var Pause, Continue os.Signal
