//go:build race

package sharedset_test

// slowdown is how much slower the race detector may make a loop over bytes.
const slowdown = 10
