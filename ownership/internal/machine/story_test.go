package machine

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// scene is where a story is.
type scene struct {
	Part
	View
}

// The stories in testdata: a command is `begin`, with the state to begin in, or `next`, with inputs, one in a line. The state
// begins trusted, with a plan that gives the partition to another member. What comes after ---- is written by go test -rewrite.
func TestStories(t *testing.T) {
	names := map[string]named{}
	for _, typ := range []string{"Claim", "Handler", "Input", "Action"} {
		names[typ] = constants(t, typ)
	}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := scene{View: View{Trusted: true, Planned: true}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "begin":
				w = begin(t, names, d)
				return w.show(names) + "\n"
			case "next":
				var out strings.Builder
				for name := range strings.FieldsSeq(d.Input) {
					in := Input(names["Input"].value(t, name))
					var do []Action
					w.View = viewAfter(w.View, in)
					w.Part, do = w.Next(w.View, in)
					var begun []string
					for _, a := range do {
						begun = append(begun, names["Action"][a].name)
					}
					fmt.Fprintf(&out, "%-15s → %-40s %s\n", name, w.show(names), strings.Join(begun, ", "))
				}
				return trimLines(out.String())
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// begin returns a state as a command describes it: claim=Open handler=Running facts=(Mine,Foreign) view=(Trusted,Planned).
func begin(t *testing.T, names map[string]named, d *datadriven.TestData) (w scene) {
	for _, arg := range d.CmdArgs {
		for _, val := range arg.Vals {
			switch arg.Key {
			case "claim":
				w.Claim = Claim(names["Claim"].value(t, val))
			case "handler":
				w.Handler = Handler(names["Handler"].value(t, val))
			case "facts":
				reflect.ValueOf(&w.Part).Elem().FieldByName(val).SetBool(true)
			case "view":
				reflect.ValueOf(&w.View).Elem().FieldByName(val).SetBool(true)
			default:
				d.Fatalf(t, "unknown argument %s", arg.Key)
			}
		}
	}
	return w
}

// show returns a state as text: its claim, its handler if there is one, and the facts that hold.
func (w scene) show(names map[string]named) string {
	words := []string{names["Claim"][w.Claim].name}
	if w.Handler != None {
		words = append(words, names["Handler"][w.Handler].name)
	}
	facts := reflect.ValueOf(w.Part)
	for i := range facts.NumField() {
		if f := facts.Field(i); f.Kind() == reflect.Bool && f.Bool() {
			words = append(words, strings.ToLower(facts.Type().Field(i).Name))
		}
	}
	return strings.Join(words, " ")
}
