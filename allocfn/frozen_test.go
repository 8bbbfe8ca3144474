package allocfn_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/allocfn"
	"github.com/kielgo/kiel/internal/testonly/noerr"
)

// frozenFile lists each golden vector: the ids of its functions, its file, its number there, and its hash. Members of two
// versions of this library go by the same id, so what a function of an id gives must never change. Lines are only added:
// -write-vectors appends those of new vectors, and changes none. A function that is to give something else needs a new version,
// and vectors in a new file; those of the old version stay.
const frozenFile = "testdata/frozen.txt"

// leastFrozen is how many lines frozenFile has had. It only grows.
const leastFrozen = 654

// vectorFiles returns the files of vectors, with the ids of the functions that they hold to their results.
func vectorFiles() map[string]string {
	return map[string]string{
		"all.json":                   "ordinal/1,rendezvous/1,copartitioned/1,topicbalanced/1,roundrobin/1,range/1,balanced/1",
		"balanced.json":              "balanced/1",
		"copartitioned.json":         "copartitioned/1",
		"ordinal.json":               "ordinal/1",
		"range.json":                 "range/1",
		"rendezvous.json":            "rendezvous/1",
		"roundrobin.json":            "roundrobin/1",
		"topicbalanced.json":         "topicbalanced/1",
		"topicbalanced_weights.json": "topicbalanced/1",
		"topics.json":                "roundrobin/1,range/1,balanced/1,topicbalanced/1",
	}
}

// everyFunc returns all functions of the package.
func everyFunc() []allocfn.Func {
	var all []allocfn.Func
	for _, f := range allocfn.All() {
		all = append(all, f.Func)
	}
	return all
}

// allVector is a case of testdata/all.json: a group with weights, zones and topics, and a sum of the owners by each function's
// id.
type allVector struct {
	topicsVector
	Sums map[string]string
}

// TestAllVectors holds all functions to what they gave for members of weights, zones and topics, those that look at none of these
// included.
func TestAllVectors(t *testing.T) {
	for i, v := range load[allVector](t, "all.json") {
		for _, f := range everyFunc() {
			want, ok := v.Sums[f.ID()]
			if !ok {
				t.Errorf("vector %d has no result of %s", i, f.ID())
			} else if got := hashOwners(mustCall(t, f, v.input())); got != want {
				t.Errorf("vector %d: %s gives %s, and gave %s", i, f.ID(), got, want)
			}
		}
	}
}

// TestVectorsOnlyGrow is red if a golden vector was changed or removed, if one is not listed in frozenFile, and if a function or
// a version of one has none.
func TestVectorsOnlyGrow(t *testing.T) {
	now, ids := listVectors(t)
	data, err := os.ReadFile(frozenFile)
	if err != nil && !*writeVectors {
		t.Fatal(err)
	}
	frozen := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(data) == 0 {
		frozen = nil
	}
	if len(frozen) < leastFrozen {
		t.Errorf("%s has %d lines, and had %d", frozenFile, len(frozen), leastFrozen)
	}
	listed := make(map[string]bool, len(frozen))
	for _, line := range frozen {
		listed[line] = true
		if !slices.Contains(now, line) {
			t.Errorf("the vector %q was changed or removed: a function that gives something else needs a new version", line)
		}
	}
	var added []string
	for _, line := range now {
		if !listed[line] {
			added = append(added, line)
		}
	}
	if len(added) > 0 && *writeVectors && !t.Failed() {
		noerr.Must(t, os.WriteFile(frozenFile, []byte(strings.Join(append(frozen, added...), "\n")+"\n"), 0o644))
	} else if len(added) > 0 {
		t.Errorf("%d vectors are not in %s, as %q: add them with -write-vectors", len(added), frozenFile, added[0])
	}
	for _, f := range everyFunc() {
		if !ids[f.ID()] {
			t.Errorf("%s has no vectors", f.ID())
		}
	}
}

// listVectors returns a line for each vector of testdata, and the ids of functions that have vectors.
func listVectors(t *testing.T) (lines []string, ids map[string]bool) {
	t.Helper()
	ids = make(map[string]bool)
	files, of := vectorFiles(), make([]string, 0, 10)
	for file := range files {
		of = append(of, file)
	}
	slices.Sort(of)
	for _, file := range of {
		for id := range strings.SplitSeq(files[file], ",") {
			ids[id] = true
		}
		for i, raw := range load[json.RawMessage](t, file) {
			var text bytes.Buffer
			noerr.Must(t, json.Compact(&text, raw))
			sum := sha256.Sum256(text.Bytes())
			lines = append(lines, fmt.Sprintf("%s %s %d %x", files[file], file, i, sum[:8]))
		}
	}
	return lines, ids
}
