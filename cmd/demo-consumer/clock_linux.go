package main

import "golang.org/x/sys/unix"

// monotonic returns CLOCK_MONOTONIC in nanoseconds: the same clock for all processes of the machine, so that their event logs can
// be compared.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // CLOCK_MONOTONIC is always there on Linux
	}
	return ts.Nano()
}
