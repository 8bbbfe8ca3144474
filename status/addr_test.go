package status_test

import (
	"strings"
	"testing"

	"github.com/kielgo/kiel/status"
)

func TestCheckAddr(t *testing.T) {
	for _, good := range []string{"http://host-1:9400", "https://10.0.0.1:443", "http://[fd00::1]:9400", "http://" + strings.Repeat("h", 52) + ":9400"} {
		if err := status.CheckAddr(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "host:9400", "http://host", "http://host:", "http://host:0", "http://host:65536", "http://:9400", "ftp://host:9400", "file:///etc/passwd",
		"http://host:9400/", "http://host:9400/admin", "http://host:9400?x=1", "http://host:9400#x", "http://me@host:9400", "http://me:secret@host:9400",
		"http://host:9400\n", "http://ho st:9400", "HTTP://host:9400", "http://" + strings.Repeat("h", 53) + ":9400", "http://h\x1b:9400",
	} {
		if status.CheckAddr(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
