//go:build !race

package sessions_test

// statesOfAGroup is how many states of each group are explored unless -states says otherwise.
const statesOfAGroup = statesForTable
