package functions

import (
	"errors"
	"runtime"
	"sync"
)

// How many seeds the figures are measured over.
const (
	curveSeeds  = 20
	spreadSeeds = 20
	switchSeeds = 10
)

// moveSeeds returns the same for each of MoveSizes.
func moveSeeds() []int { return []int{200, 400, 30} }

// CurveSizes returns the groups of the picture of movement against members.
func CurveSizes() []Size {
	var sizes []Size
	for _, n := range []int{2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1_000} {
		sizes = append(sizes, Size{n, 10_000, 100})
	}
	return sizes
}

// SpreadSizes returns the groups of the picture of spread: members and topics that do not divide without a rest, where an even
// plan has a spread of one.
func SpreadSizes() []Size {
	var sizes []Size
	for _, size := range []int{4, 10, 40, 100, 250, 1_000} {
		sizes = append(sizes, Size{12, 1_000, size})
	}
	return sizes
}

// Small is a limit for [MeasureMovements] with which it takes a second.
const Small = 12 * 1_000

// MeasureMovements measures the functions in the groups whose members times partitions are at most that, several functions at a
// time. With all groups it takes some minutes.
func MeasureMovements(all []Function, most int) (*Movements, error) {
	parts := make([]Movements, len(all))
	faults := make([]error, len(all))
	free := make(chan bool, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i, f := range all {
		running.Go(func() {
			free <- true
			defer func() { <-free }()
			faults[i] = parts[i].measure(f, most)
		})
	}
	running.Wait()
	m := new(Movements)
	for _, part := range parts {
		m.Moves = append(m.Moves, part.Moves...)
		m.Curve = append(m.Curve, part.Curve...)
		m.Spreads = append(m.Spreads, part.Spreads...)
	}
	return m, errors.Join(errors.Join(faults...), m.measureSwitches(all, most))
}

// measureSwitches goes from each function to each later one that all members can run.
func (m *Movements) measureSwitches(all []Function, most int) error {
	for i, to := range all {
		for _, from := range all[i+1:] {
			for _, s := range MoveSizes()[:2] {
				if s.Members*s.Partitions > most || from.peer || from.Numbered || to.Numbered {
					continue
				}
				r, err := MeasureSwitch(from, to, s, switchSeeds)
				if err != nil {
					return err
				}
				m.Switches = append(m.Switches, r)
			}
		}
	}
	return nil
}

func (m *Movements) measure(f Function, most int) error {
	for i, s := range MoveSizes() {
		if s.Members*s.Partitions > most {
			continue
		}
		moves, err := MeasureMoves(f, s, moveSeeds()[i])
		if err != nil {
			return err
		}
		m.Moves = append(m.Moves, moves)
	}
	if f.peer {
		return nil
	}
	for _, s := range CurveSizes() {
		if s.Members*s.Partitions > most {
			continue
		}
		moves, err := MeasureMoves(f, s, curveSeeds)
		if err != nil {
			return err
		}
		m.Curve = append(m.Curve, moves)
	}
	for _, s := range SpreadSizes() {
		if s.Members*s.Partitions > most {
			continue
		}
		spread, err := MeasureSpread(f, s, spreadSeeds)
		if err != nil {
			return err
		}
		m.Spreads = append(m.Spreads, spread)
	}
	return nil
}
