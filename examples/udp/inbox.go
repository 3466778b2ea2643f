package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/timingwheel-go/timingwheel/examples/internal/fault"
)

// message returns the i-th message of a flow. The receiver can check it, because it is a function
// of the flow and i.
func message(id uint32, i int) []byte {
	var name [12]byte
	binary.BigEndian.PutUint32(name[:], id)
	binary.BigEndian.PutUint64(name[4:], uint64(i))
	sum := sha256.Sum256(name[:])
	return append(name[:], sum[:]...)
}

// inbox checks that each message of each flow is delivered once, in order.
type inbox struct {
	faults *fault.List
	count  map[flow]int
	total  int
}

func newInbox(faults *fault.List) *inbox { return &inbox{faults: faults, count: make(map[flow]int)} }

func (in *inbox) deliver(f flow, m []byte) {
	i := in.count[f]
	in.faults.Check(bytes.Equal(m, message(f.id, i)), "flow %d: another message instead of message %d", f.id, i)
	in.count[f]++
	in.total++
}

// complete checks that all messages were delivered.
func (in *inbox) complete(flows, messages int) {
	in.faults.Check(len(in.count) == flows, "messages of %d flows instead of %d", len(in.count), flows)
	for f, n := range in.count {
		in.faults.Check(n == messages, "flow %d: %d messages instead of %d", f.id, n, messages)
	}
}
