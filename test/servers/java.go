package servers

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/servers/software"
)

// javaCommand is a Java with a small heap and the classes of a folder of jars that starts fast.
func javaCommand(tb testing.TB, heap, jars string, args ...string) *exec.Cmd {
	tb.Helper()
	java, err := software.Java()
	if err != nil {
		tb.Fatal(err)
	}
	flags := append(software.JavaFlags(), "-Xmx"+heap, "-XX:SharedArchiveFile="+software.Classes(jars), "-cp", jars+"/*")
	// The test's context ends before its cleanups, and the process lives until these.
	return exec.CommandContext(context.WithoutCancel(tb.Context()), java, append(flags, args...)...)
}

// writeConfig writes lines of key=value.
func writeConfig(tb testing.TB, path string, config map[string]string) {
	tb.Helper()
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&lines, "%s=%s\n", key, config[key])
	}
	writeFile(tb, path, lines.String())
}

func writeFile(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}
