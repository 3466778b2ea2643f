package main

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEachOrderIsPaidOrCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		assert.NoError(t, run(&out))
		// A payment at the last moment may be in time or not.
		assert.Regexp(t, `^10000 orders: [67]\d\d\d paid, [34]\d\d\d cancelled; [12]\d\d\d payments were too late\n$`, out.String())
	})
}

func TestCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	var all []*order
	for i := range orders {
		o := &order{placed: time.Unix(0, 0), paid: i%10 > 1}
		if !o.paid {
			o.cancelled = o.placed.Add(timeToPay)
		}
		all = append(all, o)
	}
	assert.NoError(t, check(io.Discard, all, 0))
	assert.ErrorContains(t, check(io.Discard, all, 1), "1 payments refused")

	all[0].paid = true
	assert.ErrorContains(t, check(io.Discard, all, 0), "order 0: paid true")
	*all[0] = order{}
	assert.ErrorContains(t, check(io.Discard, all, 0), "order 0: paid false")
	*all[0] = order{placed: time.Unix(0, 0), cancelled: time.Unix(0, 1)}
	assert.ErrorContains(t, check(io.Discard, all, 0), "order 0: cancelled after 1ns")
}
