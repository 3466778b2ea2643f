//go:build !linux

package main

import (
	"errors"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const memoryOfMachine = "three quarters of the machine's"

// machineMemory stands in for the memory that can be had without swapping, which each system tells
// in another way, if at all: a quarter is left to the system and to other programs.
func machineMemory() (uint64, error) {
	total, err := memlimit.FromSystem()
	return total / 4 * 3, err
}

// peakMemory is told by each system in another way; see watch.
func peakMemory() (uint64, error) { return 0, errors.New("not known here") }
