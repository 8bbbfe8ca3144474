package suite_test

import (
	"encoding/xml"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/internal/testonly/logtest"
	"github.com/kielgo/kiel/test/members"
	"github.com/kielgo/kiel/test/servers"
	"github.com/kielgo/kiel/test/wait"
)

var only = flag.String("only", "", "the files of kazoo's tests to run, separated by commas; all when it is empty")

// total is how many tests kazoo 2.11.0 has.
const total = 493

// leftOut are kazoo's tests of what zktest does not have, and why. They are not run.
func leftOut() map[string]string {
	return map[string]string{
		"test_client.TestSSLClient.test_create":             "needs a port for TLS",
		"test_client.TestReconfig.test_no_super_auth":       "needs a server that can be reconfigured",
		"test_client.TestReconfig.test_add_remove_observer": "needs a server that can be reconfigured",
		"test_client.TestReconfig.test_bad_input":           "needs a server that can be reconfigured",
		"test_connection.TestReadOnlyMode.test_read_only":   "needs servers that serve reads without a quorum",
	}
}

// skippedByKazoo are the tests that kazoo itself skips here, and why.
func skippedByKazoo() map[string]string {
	const sasl = "kazoo's harness has not set up SASL"
	return map[string]string{
		"test_build.TestBuildEnvironment.test_zookeeper_version":              "kazoo compares the version on its CI alone",
		"test_sasl.TestLegacySASLDigestAuthentication.test_connect_sasl_auth": sasl,
		"test_sasl.TestLegacySASLDigestAuthentication.test_invalid_sasl_auth": sasl,
		"test_sasl.TestSASLDigestAuthentication.test_connect_sasl_auth":       sasl,
		"test_sasl.TestSASLDigestAuthentication.test_invalid_sasl_auth":       sasl,
		"test_sasl.TestSASLGSSAPIAuthentication.test_connect_gssapi_auth":     sasl,
		"test_sasl.TestSASLGSSAPIAuthentication.test_invalid_gssapi_auth":     sasl,
	}
}

func TestMain(m *testing.M) {
	logtest.Silence()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// tries is how often a test may fail before it has failed: kazoo's tests wait for as little as 0.1 s, which is short on a busy
// machine. The second and third time such tests run when everything else has ended.
const tries = 3

// TestSuite runs kazoo's own tests. Most of them wait most of the time, so some processes of pytest run side by side.
func TestSuite(t *testing.T) {
	r := newRunner(t, startServers(t), leftOut(), "servers_in_memory")
	judge(t, r.insist(nil, divide(r.files)...))
}

func judge(t *testing.T, cases []testCase) {
	t.Helper()
	passed := 0
	skipped := []string{}
	for _, c := range cases {
		switch {
		case c.failed():
			t.Errorf("%s failed:\n%s", c.name(), c.text())
		case c.Skipped != nil:
			skipped = append(skipped, c.name())
		default:
			passed++
		}
	}
	if *only != "" {
		t.Logf("%d of kazoo's tests passed, %d were skipped", passed, len(skipped))
		return
	}
	t.Attr("passed", fmt.Sprintf("%d of kazoo's %d tests", passed, total))
	slices.Sort(skipped)
	if want := slices.Sorted(maps.Keys(skippedByKazoo())); !slices.Equal(skipped, want) {
		t.Errorf("kazoo skipped %q, want %q", skipped, want)
	}
	if want := total - len(leftOut()) - len(skippedByKazoo()); passed != want {
		t.Errorf("%d of kazoo's tests passed, want %d", passed, want)
	}
}

// startServers starts `demo-consumer servers` and returns the address of its ZooKeeper.
func startServers(t *testing.T) string {
	t.Helper()
	bin, err := members.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := servers.Start(t, "servers", exec.Command(bin, "servers", "--zookeeper=127.0.0.1:0", "--kafka=127.0.0.1:0"))
	announced := regexp.MustCompile(`ZooKeeper at (127\.0\.0\.1:\d+),`)
	var address []string
	wait.Until(t, time.Minute, func() bool {
		address = announced.FindStringSubmatch(p.Log())
		return address != nil
	}, p.Log)
	return address[1]
}

// kazoosTests returns the folder of kazoo's tests, and the files in it that are to be run.
func kazoosTests(t *testing.T, python string) (dir string, files []string) {
	t.Helper()
	pattern := filepath.Join(filepath.Dir(python), "..", "lib", "python*", "site-packages", "kazoo", "tests", "test_*.py")
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("kazoo's tests at %s: %q, %v", pattern, found, err)
	}
	for _, file := range found {
		if name := filepath.Base(file); *only == "" || slices.Contains(strings.Split(*only, ","), name) {
			files = append(files, name)
		}
	}
	return filepath.Dir(found[0]), files
}

// divide distributes files so that each process of pytest has about as much to wait for.
func divide(files []string) [][]string {
	groups := make([][]string, 3)
	for _, file := range files {
		switch file {
		case "test_client.py", "test_connection.py", "test_eventlet_handler.py", "test_gevent_handler.py":
			groups[0] = append(groups[0], file)
		case "test_watchers.py", "test_cache.py", "test_selectors_select.py", "test_threading_handler.py", "test_utils.py":
			groups[1] = append(groups[1], file)
		default:
			groups[2] = append(groups[2], file)
		}
	}
	return slices.DeleteFunc(groups, func(group []string) bool { return len(group) == 0 })
}

// nodeOf returns how pytest calls a test.
func nodeOf(name string) string {
	file, test, _ := strings.Cut(name, ".")
	return file + ".py::" + strings.ReplaceAll(test, ".", "::")
}

// runner runs kazoo's tests on a server.
type runner struct {
	*testing.T

	python, dir string
	files       []string          // kazoo's tests, in dir
	left        map[string]string // those that are not run, and why
	plugins     []string
	env         []string
	started     int // processes
}

func newRunner(t *testing.T, server string, left map[string]string, plugins ...string) *runner {
	t.Helper()
	r := &runner{T: t, python: servers.KazooTests(t), left: left, plugins: plugins, env: []string{"KAZOO_SERVER=" + server}}
	r.dir, r.files = kazoosTests(t, r.python)
	return r
}

// insist runs groups of files, and runs those tests again that have failed, but for those that are expected to fail.
func (r *runner) insist(expected map[string]string, groups ...[]string) []testCase {
	r.Helper()
	failed := func(c testCase) bool { return c.failed() && expected[c.name()] == "" }
	cases := r.run(groups...)
	for try := 2; try <= tries && slices.ContainsFunc(cases, failed); try++ {
		var again []string
		for _, c := range cases {
			if failed(c) {
				r.Logf("%s failed and runs again, try %d:\n%s", c.name(), try, c.text())
				again = append(again, nodeOf(c.name()))
			}
		}
		cases = append(slices.DeleteFunc(cases, failed), r.run(again)...)
	}
	return cases
}

// run starts a process of pytest for each group of files, or tests, and returns what became of all tests.
func (r *runner) run(groups ...[]string) []testCase {
	r.Helper()
	var processes []*pytest
	for _, group := range groups {
		processes = append(processes, r.start(group))
	}
	var cases []testCase
	for _, p := range processes {
		cases = append(cases, p.results(r.T)...)
	}
	return cases
}

// pytest is a process that runs some of the tests.
type pytest struct {
	*servers.Process

	report string
}

func (r *runner) start(tests []string) *pytest {
	r.Helper()
	here, err := os.Getwd()
	if err != nil {
		r.Fatal(err)
	}
	r.started++
	name := fmt.Sprintf("pytest-%d", r.started)
	report := filepath.Join(r.TempDir(), name+".xml")
	args := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=" + report}
	for _, plugin := range r.plugins {
		args = append(args, "-p", plugin)
	}
	for left := range r.left {
		args = append(args, "--deselect="+nodeOf(left))
	}
	cmd := exec.Command(r.python, append(append(args, "--rootdir=."), tests...)...)
	cmd.Dir = r.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CI=") || strings.HasPrefix(v, "ZOOKEEPER_") // kazoo's harness reads them
	}), append(r.env, "PYTHONPATH="+here, "PYTHONDONTWRITEBYTECODE=1", "ZOOKEEPER_VERSION="+servers.ZooKeeper39)...)
	return &pytest{servers.Start(r.T, name, cmd), report}
}

// results waits until the process has run its tests.
func (p *pytest) results(t *testing.T) []testCase {
	t.Helper()
	err := p.Wait()
	report, readErr := os.ReadFile(p.report)
	if readErr != nil {
		t.Fatalf("pytest ended with %v and left no report: %v\n%s", err, readErr, p.Log())
	}
	var all struct {
		Cases []testCase `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(report, &all); err != nil {
		t.Fatalf("pytest's report: %v", err)
	}
	if err != nil && !slices.ContainsFunc(all.Cases, testCase.failed) {
		t.Errorf("pytest ended with %v\n%s", err, p.Log())
	}
	return all.Cases
}

// testCase is a test in pytest's report.
type testCase struct {
	Class   string `xml:"classname,attr"`
	Test    string `xml:"name,attr"`
	Failure *struct {
		Text string `xml:",chardata"`
	} `xml:"failure"`
	Error *struct {
		Text string `xml:",chardata"`
	} `xml:"error"`
	Skipped *struct{} `xml:"skipped"`
}

// name is the file, the class and the test; or the file and the test.
func (c testCase) name() string {
	return c.Class[max(0, strings.Index(c.Class, "test_")):] + "." + c.Test
}

func (c testCase) failed() bool { return c.Failure != nil || c.Error != nil }

func (c testCase) text() string {
	if c.Failure != nil {
		return c.Failure.Text
	}
	return c.Error.Text
}
