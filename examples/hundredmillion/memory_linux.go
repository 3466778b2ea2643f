package main

import "os"

const memoryOfMachine = "MemAvailable in /proc/meminfo"

// machineMemory is the memory that can be had without swapping.
func machineMemory() (uint64, error) { return readKilobytes("/proc/meminfo", "MemAvailable") }

// peakMemory is the most memory that this process has had at a time, file pages included.
func peakMemory() (uint64, error) { return readKilobytes("/proc/self/status", "VmHWM") }

func readKilobytes(path, key string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return kilobytes(f, key)
}
