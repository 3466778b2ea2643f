package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"unsafe"
)

// collisionByFormula returns the probability that a goroutine shares its shard with at least one
// other goroutine, if each has a random shard: balls in bins.
func collisionByFormula(goroutines, shards int) float64 {
	return 1 - math.Pow(1-1/float64(shards), float64(goroutines-1))
}

// collisionByStacks returns the share of goroutines that have the same shard as another one. Each
// round chooses goroutines at random from those with the given stack addresses.
func collisionByStacks(addresses []uintptr, goroutines, shards, rounds int) float64 {
	rng := rand.New(rand.NewPCG(uint64(goroutines), uint64(shards)))
	addresses = slices.Clone(addresses)
	collided := 0
	for range rounds {
		on := make([]int, shards)
		for i := range goroutines {
			k := i + rng.IntN(len(addresses)-i)
			addresses[i], addresses[k] = addresses[k], addresses[i]
			on[home(addresses[i], shards)]++
		}
		for _, n := range on {
			if n > 1 {
				collided += n
			}
		}
	}
	return float64(collided) / float64(rounds*goroutines)
}

// home returns the first shard of a goroutine by its stack address. Hash and table are as in
// engine.pick of the root package, before the goroutine has moved on to another shard.
func home(address uintptr, shards int) int {
	h := uint64(address>>10) * 0x9E3779B97F4A7C15
	return int(h>>54) % shards
}

// stacks starts n goroutines that exist at the same time and returns a stack address of each.
func stacks(n int) []uintptr {
	addresses := make([]uintptr, n)
	var started, ended sync.WaitGroup
	end := make(chan struct{})
	started.Add(n)
	for i := range addresses {
		ended.Go(func() {
			addresses[i] = address()
			started.Done()
			<-end
		})
	}
	started.Wait()
	close(end)
	ended.Wait()
	return addresses
}

//go:noinline
func address() uintptr {
	var mark byte
	return uintptr(unsafe.Pointer(&mark))
}
