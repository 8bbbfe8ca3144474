//go:build race

package sessions_test

// statesOfAGroup is how many states of each group are explored: the race detector makes each of them cost ten times as much.
const statesOfAGroup = 2_000
