// Command plots makes what docs/choosing-a-function.md shows of package allocfn, and docs/data-path.md and docs/hand-over.md of
// package consumer: the pictures beside these pages, and the tables in them that stand between a line "<!-- begin NAME … -->" and
// a line "<!-- end NAME -->".
//
// It makes them of what TestAllocationTimes, TestAllocationMovement, TestDataPath and TestMoves of test/bench have measured,
// which is in test/bench/testdata; so what it writes is the same for the same figures. make figures, make figures-data and make
// figures-moves do all of it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/kielgo/kiel/test/bench/datapath"
	"github.com/kielgo/kiel/test/bench/functions"
	"github.com/kielgo/kiel/test/bench/moves"
)

// The pages that show figures.
const (
	functionsPage = "choosing-a-function.md"
	dataPathPage  = "data-path.md"
	movesPage     = "hand-over.md"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("plots", flag.ContinueOnError)
	flags.SetOutput(errOut)
	results := flags.String("results", "test/bench/testdata", "folder of what was measured")
	docs := flags.String("docs", "docs", "folder of the page, and of the pictures that are written")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	files, err := render(*results, *docs)
	if err != nil {
		fmt.Fprintln(errOut, "plots:", err)
		return 1
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(*docs, name)
		if err := os.WriteFile(file, files[name], 0o644); err != nil {
			fmt.Fprintln(errOut, "plots:", err)
			return 1
		}
		fmt.Fprintln(out, file)
	}
	return 0
}

// render returns the files of the docs folder as they are to be.
func render(results, docs string) (map[string][]byte, error) {
	times, err1 := functions.ReadFile[functions.Times](results, functions.TimesFile)
	movement, err2 := functions.ReadFile[functions.Movements](results, functions.MovementFile)
	path, err3 := functions.ReadFile[datapath.Figures](results, datapath.File)
	moved, err4 := functions.ReadFile[moves.Figures](results, moves.File)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for name, picture := range map[string]func() ([]byte, error){
		"movement.svg":  func() ([]byte, error) { return movementPicture(movement.Curve) },
		"spread.svg":    func() ([]byte, error) { return spreadPicture(movement.Spreads) },
		"time.svg":      func() ([]byte, error) { return timePicture(times.Times) },
		"data-path.svg": func() ([]byte, error) { return dataPathPicture(path) },
		"hand-over.svg": func() ([]byte, error) { return movesPicture(moved) },
	} {
		data, err := picture()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = data
	}
	for page, tables := range map[string]map[string]string{
		functionsPage: tables(times, movement),
		dataPathPage:  dataPathTables(path),
		movesPage:     movesTables(moved),
	} {
		text, err := os.ReadFile(filepath.Join(docs, page))
		if err != nil {
			return nil, err
		}
		if files[page], err = fill(text, tables); err != nil {
			return nil, fmt.Errorf("%s: %w", page, err)
		}
	}
	return files, nil
}
