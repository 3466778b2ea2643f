package adopters

import (
	"time"

	"github.com/centrifugal/centrifuge"

	"github.com/timingwheel-go/timingwheel"
)

// CentrifugeTimers keeps the client timers of a centrifuge node on a timing wheel: pings, the wait
// for the pong, presence, and the expiry of stale and of authenticated connections.
//
//	node, err := centrifuge.New(centrifuge.Config{
//		ClientTimerScheduler: adopters.CentrifugeTimers{Wheel: tw},
//	})
//
// A timer never fires early, and fires at most one tick of the wheel late. With the default
// executor of the wheel, a callback that blocks delays no other client. No timer fires after the
// wheel is stopped, so shut the node down first.
type CentrifugeTimers struct {
	Wheel *timingwheel.TimingWheel // nil means timingwheel.Default()
}

// ScheduleTimer implements [centrifuge.TimerScheduler].
func (s CentrifugeTimers) ScheduleTimer(d time.Duration, callback func()) centrifuge.TimerCanceler {
	tw := s.Wheel
	if tw == nil {
		tw = timingwheel.Default()
	}
	return centrifugeTimer(tw.AfterFunc(d, callback))
}

type centrifugeTimer timingwheel.Timer

// Cancel implements [centrifuge.TimerCanceler]. It does not wait for a callback that is running.
func (t centrifugeTimer) Cancel() { timingwheel.Timer(t).Stop() }
