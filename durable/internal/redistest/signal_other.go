//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// canSignal reports whether the system has the signals that faults need.
const canSignal = false

var errNoSignals = errors.New("redistest: this system does not support the signal")

func pauseProcess(*os.Process) error     { return errNoSignals }
func continueProcess(*os.Process) error  { return errNoSignals }
func terminateProcess(*os.Process) error { return errNoSignals }
