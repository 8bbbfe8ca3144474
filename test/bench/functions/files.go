package functions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// oneALine puts each object of a list on a line of its own: these sequences of characters do not occur in the texts of figures.
var oneALine = strings.NewReplacer("[{", "[\n{", "},{", "},\n{", "}]", "}\n]", `],"`, "],\n\"")

// WriteFile writes figures to a file of the folder, as JSON with one record a line.
func WriteFile(folder, file string, figures any) error {
	data, err := json.Marshal(figures)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, file), []byte(oneALine.Replace(string(data))+"\n"), 0o644)
}

// ReadFile reads what WriteFile has written.
func ReadFile[Figures any](folder, file string) (f Figures, err error) {
	data, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(data, &f)
}
