package boltstore

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/timingwheel-go/timingwheel/durable/driver"
)

// Options are those of [Open]. The zero value of each field stands for its default.
type Options struct {
	// Now is the clock, which may be called from many goroutines. Nil: time.Now.
	Now func() time.Time

	// LockTimeout is how long Open waits for another process that has the file open. Defaults to one second; negative: it does not wait.
	LockTimeout time.Duration

	// NoSync leaves out every fsync. It is unsafe: what was stored may be lost, and the file damaged beyond repair, when the machine stops. A crash
	// of the process alone loses nothing. For tests.
	NoSync bool

	// FileMode is that of a file that is made. Defaults to 0600.
	FileMode fs.FileMode

	// SkipCheck leaves out the check of the pages in Open, which reads the file once: about 0.1 s for a million
	// messages that the system has in memory, otherwise as long as the disk takes for the file. Without the check
	// damage may end the process (bbolt recurses until the stack overflows) or take all of its memory.
	SkipCheck bool

	// Socket serves the queues to other processes on a Unix socket, whose path is that of the file and ".sock", with
	// the permissions of FileMode. delayq uses it for a file that is in use, and programs use it with [Connect]. The
	// system bounds the length of the path to about 100 bytes.
	Socket bool

	stall   time.Duration // after which a commit has failed, see stallTimeout
	maxSize int           // of the file in bytes, for tests of a full disk; 0: no limit
	maxFree int           // see the constant
	reserve int           // bytes of the reserve, see the constant
}

func (o Options) withDefaults() (Options, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = time.Second
	}
	if o.FileMode == 0 {
		o.FileMode = 0o600
	}
	if o.maxFree == 0 {
		o.maxFree = maxFree
	}
	if o.stall == 0 {
		o.stall = stallTimeout
	}
	if o.reserve == 0 {
		o.reserve = reserveBytes
	}
	if o.FileMode&^fs.ModePerm != 0 || o.FileMode&0o600 != 0o600 {
		return o, fmt.Errorf("%w FileMode %v: permission bits that let the owner read and write are accepted, and 0 for 0600",
			driver.ErrInvalid, o.FileMode)
	}
	return o, nil
}

// stallTimeout is how long calls wait for a commit that is under way. A disk that takes longer has failed.
const stallTimeout = time.Minute
