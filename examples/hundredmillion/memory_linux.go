package main

import "os"

const memoryOfMachine = "MemAvailable in /proc/meminfo"

// machineMemory returns the memory that is available without swapping.
func machineMemory() (uint64, error) { return readKilobytes("/proc/meminfo", "MemAvailable") }

// peakMemory returns the peak memory of this process, including file pages.
func peakMemory() (uint64, error) { return readKilobytes("/proc/self/status", "VmHWM") }

func readKilobytes(path, key string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return kilobytes(f, key)
}
