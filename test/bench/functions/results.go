package functions

import (
	"fmt"
	"slices"
)

// Times is the file of what plans took, which depends on the machine.
type Times struct {
	Machine Machine
	Times   []Time
}

// Machine is what was measured on.
type Machine struct {
	CPU, System, Go string
	Cores           int // that the process could use
	Date            string
	Versions        map[string]string // of the peers' libraries
}

// Movements is the file of what functions move and how even their plans are, which is the same wherever it is measured.
type Movements struct {
	Moves    []Moves  // at MoveSizes
	Curve    []Moves  // at CurveSizes
	Spreads  []Spread // at SpreadSizes
	Switches []Switch // at the smaller MoveSizes
}

// The files of the folder testdata.
const (
	TimesFile    = "times.json"
	MovementFile = "movement.json"
)

// Stale tells what in the file is not what was measured now: of ours alone, franz-go's plans differ from run to run. The file may
// hold more.
func Stale(file, now *Movements) []string {
	var faults []string
	ours := slices.DeleteFunc(slices.Clone(now.Moves), func(m Moves) bool { return m.Function == FranzGo })
	stale(&faults, file.Moves, ours)
	stale(&faults, file.Curve, now.Curve)
	stale(&faults, file.Spreads, now.Spreads)
	stale(&faults, file.Switches, now.Switches)
	return faults
}

func stale[E comparable](faults *[]string, file, now []E) {
	for _, one := range now {
		if !slices.Contains(file, one) {
			*faults = append(*faults, fmt.Sprintf("%+v", one))
		}
	}
}
