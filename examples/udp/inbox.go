package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

// message is the i-th message of a flow. Whoever knows the flow and i can tell it from every other,
// and from a damaged one.
func message(id uint32, i int) []byte {
	var name [12]byte
	binary.BigEndian.PutUint32(name[:], id)
	binary.BigEndian.PutUint64(name[4:], uint64(i))
	sum := sha256.Sum256(name[:])
	return append(name[:], sum[:]...)
}

// inbox checks what is delivered: each message of each flow once, in order.
type inbox struct {
	faults *fault.List
	count  map[flow]int
	total  int
}

func newInbox(faults *fault.List) *inbox { return &inbox{faults: faults, count: make(map[flow]int)} }

func (in *inbox) deliver(f flow, m []byte) {
	i := in.count[f]
	in.faults.Check(bytes.Equal(m, message(f.id, i)), "flow %d: something else in the place of message %d", f.id, i)
	in.count[f]++
	in.total++
}

// complete checks that everything has come.
func (in *inbox) complete(flows, messages int) {
	in.faults.Check(len(in.count) == flows, "messages of %d flows instead of %d", len(in.count), flows)
	for f, n := range in.count {
		in.faults.Check(n == messages, "flow %d: %d messages instead of %d", f.id, n, messages)
	}
}
