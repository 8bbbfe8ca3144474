//go:build !linux

package main

import "time"

// monotonic falls back on the wall clock where CLOCK_MONOTONIC can't be read portably; logs of several processes then compare as
// well as that clock allows.
func monotonic() int64 { return time.Now().UnixNano() }
