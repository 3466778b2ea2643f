package durable_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/timingwheel-go/timingwheel/durable"
	"github.com/timingwheel-go/timingwheel/durable/driver"
)

func TestNamesOfValues(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]fmt.Stringer{
		"Cancelled":   durable.Cancelled,
		"Rescheduled": durable.Rescheduled,
		"Firing":      durable.Firing,
		"NotFound":    durable.NotFound,
		"Result(0)":   durable.Result(0),
		"Result(5)":   durable.NotFound + 1,
		"Scheduled":   durable.StateScheduled,
		"Leased":      durable.StateLeased,
		"Dead":        durable.StateDead,
		"State(5)":    durable.StateDead + 1,
		"Begin":       driver.OpBegin,
		"Cancel":      driver.OpCancel,
		"Purge":       driver.OpPurge,
		"Expire":      driver.OpExpire,
		"Op(12)":      driver.OpExpire + 1,
		"Done":        driver.StatusDone,
		"Early":       driver.StatusEarly,
		"LeaseLost":   driver.StatusLeaseLost,
		"Status(255)": driver.Status(255),
	} {
		assert.Equal(t, want, value.String())
	}
	assert.Equal(t, "NotFound", fmt.Sprint(durable.NotFound))
}
