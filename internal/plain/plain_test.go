package plain_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/kielgo/kiel/internal/plain"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"orders:0 größe": "orders:0 größe", "a\x1b[2J": `a\u001b[2J`, "a\u009bb": `a\u009bb`, "\u202eb": `\u202eb`, "a\nb": `a\u000ab`, "\U000e0041": `\udb40\udc41`, "\xff": `\ufffd`,
	} {
		got := plain.Text(in)
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if err := json.Unmarshal(fmt.Appendf(nil, `"%s"`, got), new(string)); err != nil {
			t.Errorf("%q: no JSON: %v", got, err)
		}
	}
}
