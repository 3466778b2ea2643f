package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"unsafe"
)

// meetByFormula is the probability that a goroutine shares its shard with at least one of the others, if each has a
// random one: balls in bins.
func meetByFormula(goroutines, shards int) float64 {
	return 1 - math.Pow(1-1/float64(shards), float64(goroutines-1))
}

// meetByStacks is the share of goroutines that have the same shard as another one, if in each of so many rounds a random
// choice of those with the given stack addresses is at work.
func meetByStacks(addresses []uintptr, goroutines, shards, rounds int) float64 {
	rng := rand.New(rand.NewPCG(uint64(goroutines), uint64(shards)))
	addresses = slices.Clone(addresses)
	met := 0
	for range rounds {
		on := make([]int, shards)
		for i := range goroutines {
			k := i + rng.IntN(len(addresses)-i)
			addresses[i], addresses[k] = addresses[k], addresses[i]
			on[home(addresses[i], shards)]++
		}
		for _, n := range on {
			if n > 1 {
				met += n
			}
		}
	}
	return float64(met) / float64(rounds*goroutines)
}

// home is the shard that a goroutine arms on at first, by its stack address: the hash and the table of pick.go in the
// root package. It goes to another one when it meets somebody there.
func home(address uintptr, shards int) int {
	h := uint64(address>>10) * 0x9E3779B97F4A7C15
	return int(h>>54) % shards
}

// stacks starts goroutines that exist at the same time and returns a stack address of each.
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
