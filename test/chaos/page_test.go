package chaos_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/kielgo/kiel/test/servers"
)

// page is where a process shows its metrics, if it is given --metrics.
type page struct{ addr string }

func newPage(t *testing.T) page {
	t.Helper()
	return page{addr: fmt.Sprintf("127.0.0.1:%d", servers.FreePorts(t, 1)[0])}
}

// sum adds the values of a metric's series with a label.
func (p page) sum(t *testing.T, name, label string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	total := 0.0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, label) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		total += value
	}
	return total
}
