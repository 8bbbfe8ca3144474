//go:build !race

package sharedset_test

const slowdown = 1
