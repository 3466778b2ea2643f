package storetest

import (
	"math/rand/v2"
	"testing"
)

// FuzzModel runs the model tests of [Run] with choices from the fuzz input, one byte per choice.
func FuzzModel(f *testing.F, newStore func(t testing.TB) Fixture) {
	f.Helper()
	const bytesOfStep, mostSteps = 32, 100
	for seed := range uint64(4) {
		random := rand.NewChaCha8([32]byte{byte(seed)})
		input := make([]byte, (20+20*seed)*bytesOfStep)
		_, _ = random.Read(input) // it never fails
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		runModel(openAs(t, newStore(t), config()), &choices{input: input, rest: rand.NewPCG(0, 0)},
			min(len(input)/bytesOfStep, mostSteps))
	})
}

// choices is a source of numbers. Each number is a byte of the input, repeated eight times, so that
// a choice among n is about input*n/256. After the end of the input the numbers are random.
type choices struct {
	input []byte
	rest  rand.Source
}

func (c *choices) Uint64() uint64 {
	if len(c.input) == 0 {
		return c.rest.Uint64()
	}
	v := uint64(c.input[0])
	c.input = c.input[1:]
	return v * 0x0101010101010101
}
