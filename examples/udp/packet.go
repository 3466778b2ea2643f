package main

import "encoding/binary"

// A packet is a data packet with a sequence number and a message, or an acknowledgement. An
// acknowledgement has the number of the data packet that it answers, which lets the sender detect
// losses, and the number of the first missing packet, which makes up for lost acknowledgements.
// Numbers wrap around.
//
//	data: kind, flow (4 bytes), seq (4 bytes), message
//	ack:  kind, flow (4 bytes), seq (4 bytes), next (4 bytes)
type packet struct {
	kind    kind
	flow    uint32
	seq     uint32
	next    uint32
	message []byte
}

type kind byte

const (
	data kind = 1 + iota
	ack
)

const (
	headerSize = 9
	ackSize    = headerSize + 4
	// maxMessage keeps a packet below the usual MTU: losing one fragment would lose the packet.
	maxMessage = 1200 - headerSize
)

// bytes returns the encoded packet.
func (p packet) bytes() []byte {
	b := make([]byte, headerSize, ackSize+len(p.message))
	b[0] = byte(p.kind)
	binary.BigEndian.PutUint32(b[1:], p.flow)
	binary.BigEndian.PutUint32(b[5:], p.seq)
	if p.kind == ack {
		return binary.BigEndian.AppendUint32(b, p.next)
	}
	return append(b, p.message...)
}

// parse decodes a packet. It returns false for an invalid one. The message is a slice of b.
func parse(b []byte) (p packet, ok bool) {
	if len(b) < headerSize {
		return p, false
	}
	p.kind, p.flow, p.seq = kind(b[0]), binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])
	switch {
	case p.kind == data && len(b) <= headerSize+maxMessage:
		p.message = b[headerSize:]
		return p, true
	case p.kind == ack && len(b) == ackSize:
		p.next = binary.BigEndian.Uint32(b[headerSize:])
		return p, true
	}
	return packet{}, false
}
