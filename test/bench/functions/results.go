package functions

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

const (
	timesFile     = "times.json"
	movementsFile = "movement.json"
)

// Write writes what is not nil to its file in the folder.
func Write(folder string, t *Times, m *Movements) error {
	if t != nil {
		if err := write(filepath.Join(folder, timesFile), t); err != nil {
			return err
		}
	}
	if m != nil {
		return write(filepath.Join(folder, movementsFile), m)
	}
	return nil
}

func write(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// Read reads both files of the folder.
func Read(folder string) (t Times, m Movements, err error) {
	for name, v := range map[string]any{timesFile: &t, movementsFile: &m} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return t, m, err
		}
		if err := json.Unmarshal(data, v); err != nil {
			return t, m, fmt.Errorf("%s: %w", name, err)
		}
	}
	return t, m, nil
}

// Stale tells what in the file is not what was measured now: of ours alone, franz-go's plans differ from run to run. The file may
// hold more.
func Stale(file, now *Movements) []string {
	var faults []string
	for _, m := range now.Moves {
		if m.Function != FranzGo && !slices.Contains(file.Moves, m) {
			faults = append(faults, fmt.Sprintf("%+v", m))
		}
	}
	for _, m := range now.Curve {
		if !slices.Contains(file.Curve, m) {
			faults = append(faults, fmt.Sprintf("%+v", m))
		}
	}
	for _, s := range now.Spreads {
		if !slices.Contains(file.Spreads, s) {
			faults = append(faults, fmt.Sprintf("%+v", s))
		}
	}
	for _, s := range now.Switches {
		if !slices.Contains(file.Switches, s) {
			faults = append(faults, fmt.Sprintf("%+v", s))
		}
	}
	return faults
}
