package kiel_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kielgo/kiel"

// Modules of others that packages may import.
const (
	zookeeper  = "github.com/go-zookeeper/zk"
	kafka      = "github.com/IBM/sarama"
	prometheus = "github.com/prometheus/client_golang/prometheus"
)

// floor is some packages that may build on the same ones. All may import the standard library but log, and the root.
type floor struct {
	packages string // without the module's path; "." is the root
	on       string // what they build on: packages of ours, and paths of other modules
}

// floors are all packages of the library, from the bottom up: the first invariant of ARCHITECTURE.md.
var floors = []floor{
	{"internal/clocks internal/defaultlog internal/testonly/endless internal/eventlog internal/latest internal/operr " +
		"internal/testonly/operrtest internal/pause internal/plain zktest recipe", ""},
	{"internal/testonly/assert internal/testonly/bubble internal/testonly/noerr", ""},
	{"internal/testonly/logtest", "log"},
	{"internal/promreg internal/testonly/promtest", prometheus},
	{". allocfn status internal/usercall", "internal/operr"},
	{"internal/statuswrite health", "status"},
	{"internal/errlog", "status internal/statuswrite"},
	{"internal/topiclist", ""},

	// Only session speaks to ZooKeeper.
	{"session", "internal/clocks internal/defaultlog internal/latest internal/operr internal/pause internal/promreg " + zookeeper + " " + prometheus},
	{"internal/watched", "session internal/latest internal/operr"},
	{"internal/zones", "session internal/watched internal/operr"},

	{"internal/hold", "session recipe internal/operr internal/pause"},
	{"internal/seqnode", "session recipe internal/hold internal/defaultlog internal/operr"},
	{"internal/testonly/recipetest", "session recipe zktest internal/testonly/endless"},
	{"recipe/counter", "session internal/operr"},
	{"recipe/lock", "session recipe internal/hold internal/operr internal/seqnode"},
	{
		"recipe/barrier recipe/election recipe/lease recipe/queue recipe/semaphore",
		"session recipe recipe/lock internal/hold internal/seqnode internal/defaultlog internal/errlog internal/operr internal/pause",
	},
	{"party", "session internal/hold internal/seqnode internal/watched internal/defaultlog internal/errlog internal/latest internal/operr internal/pause " +
		"internal/promreg " + prometheus},
	{"recipe/partitioner", "session recipe recipe/lock party internal/hold internal/seqnode internal/defaultlog internal/errlog internal/latest internal/operr " +
		"internal/pause"},
	{"internal/sharedset", "session recipe/lock internal/watched internal/defaultlog internal/errlog internal/operr internal/promreg " + prometheus},

	{"allocator", "session party internal/sharedset allocfn status internal/statuswrite internal/topiclist internal/zones internal/usercall internal/defaultlog internal/errlog " +
		"internal/latest internal/operr internal/pause internal/promreg " + prometheus},
	{"ownership/internal/machine", ""},
	{"ownership/internal/claims", "session status internal/statuswrite internal/watched internal/operr"},
	{"ownership", "session allocator status internal/statuswrite ownership/internal/machine ownership/internal/claims internal/usercall internal/defaultlog internal/errlog " +
		"internal/operr internal/promreg " + prometheus},

	// Only what is under consumer speaks to Kafka.
	{"consumer/internal/sessions", ""},
	{"consumer/internal/kafkaconn", kafka},
	{"internal/testonly/conntest", "internal/testonly/logtest go.uber.org/goleak " + kafka},
	{"consumer/internal/fetch", "consumer/internal/kafkaconn internal/defaultlog internal/errlog internal/operr " + kafka +
		" github.com/klauspost/compress/gzip github.com/klauspost/compress/snappy/xerial github.com/klauspost/compress/zstd github.com/pierrec/lz4/v4"},
	{"consumer/internal/offsets", "session consumer/internal/kafkaconn internal/errlog internal/operr internal/pause " + kafka},
	{"consumer/internal/reporting", "status internal/statuswrite consumer/internal/offsets internal/errlog internal/operr " + kafka},
	{"consumer/internal/topics", "allocator consumer/internal/kafkaconn consumer/internal/reporting internal/zones internal/operr internal/pause " + kafka},
	{"consumer/internal/handmade", "status consumer/internal/fetch consumer/internal/offsets"},
	{"consumer", "session allocator allocfn ownership status internal/statuswrite consumer/internal/sessions consumer/internal/kafkaconn consumer/internal/fetch " +
		"consumer/internal/offsets consumer/internal/reporting consumer/internal/topics consumer/internal/handmade internal/topiclist internal/zones " +
		"internal/usercall internal/defaultlog internal/errlog internal/operr internal/pause internal/promreg " + kafka + " " + prometheus},

	// These are beside consumer, and no part of a member.
	{"consumer/consumertest", "session ownership status consumer consumer/internal/fetch consumer/internal/handmade " + kafka},
	{"consumer/inspect", "session allocator ownership status internal/statuswrite consumer/internal/kafkaconn consumer/internal/offsets consumer/internal/topics " +
		"internal/operr internal/pause " + kafka},
	{"consumer/page", "status consumer/inspect internal/latest internal/operr internal/pause internal/plain"},
}

// A package builds on packages of lower floors alone, on no others than the table says, and the table says no more than there is.
func TestFloors(t *testing.T) {
	imports := libraryImports(t)
	below := []string{}
	for _, f := range floors {
		packages, on := strings.Fields(f.packages), strings.Fields(f.on)
		for _, one := range on {
			if !strings.Contains(one, ".") && one != "log" && !slices.Contains(below, one) {
				t.Errorf("%s: %s is on no lower floor", f.packages, one)
			}
			if !slices.ContainsFunc(packages, func(p string) bool { return slices.Contains(imports[p], one) }) {
				t.Errorf("%s: nothing imports %s any more", f.packages, one)
			}
		}
		for _, p := range packages {
			if _, there := imports[p]; !there {
				t.Errorf("%s is not there", p)
			}
			for _, one := range imports[p] {
				if one != "." && !slices.Contains(on, one) {
					t.Errorf("%s must not import %s: ARCHITECTURE.md, invariant 1", p, one)
				}
			}
			delete(imports, p)
		}
		below = append(below, packages...)
	}
	for p := range imports {
		t.Errorf("%s has no floor", p)
	}
}

// What only tests import is in one folder, and nothing else is there.
func TestHelpersOfTests(t *testing.T) {
	const folder = "internal/testonly/"
	imported := map[string]bool{}
	files, _ := sources(t)
	for _, path := range files {
		inFolder := strings.HasPrefix(path, folder)
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			one, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
			switch {
			case !ours || inFolder || strings.HasPrefix(path, "test/"):
			case strings.HasPrefix(one, folder):
				t.Errorf("%s imports %s, which is for tests", path, one)
			default:
				imported[one] = true
			}
		}
	}
	for p := range libraryImports(t) {
		if strings.Contains(p, "internal/") && !strings.HasPrefix(p, folder) && !imported[p] {
			t.Errorf("%s is for tests alone: it belongs to %s", p, folder)
		}
	}
}

// libraryImports returns what each package of the library imports beside the standard library, in any of its files but tests.
func libraryImports(t *testing.T) map[string][]string {
	t.Helper()
	files, _ := sources(t)
	all := map[string][]string{}
	for _, path := range files {
		if strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "test/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		all[dir] = append(all[dir], []string{}...)
		for _, spec := range file.Imports {
			one := strings.Trim(spec.Path.Value, `"`)
			first, _, _ := strings.Cut(one, "/")
			switch rest, ours := strings.CutPrefix(one, module+"/"); {
			case one == module:
				one = "."
			case ours:
				one = rest
			case !strings.Contains(first, ".") && one != "log":
				continue
			}
			if !slices.Contains(all[dir], one) {
				all[dir] = append(all[dir], one)
			}
		}
	}
	return all
}
