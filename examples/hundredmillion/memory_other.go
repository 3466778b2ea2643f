//go:build !linux

package main

import (
	"errors"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const memoryOfMachine = "three quarters of the machine"

// machineMemory returns three quarters of the memory of the machine. It leaves a quarter to the
// system and to other programs, because there is no portable way to read the available memory.
func machineMemory() (uint64, error) {
	total, err := memlimit.FromSystem()
	return total / 4 * 3, err
}

// peakMemory returns an error: there is no portable way. See sample.
func peakMemory() (uint64, error) { return 0, errors.New("not known here") }
