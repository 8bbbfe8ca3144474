package servers_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/test/servers"
)

// What is said is answered; who says nothing is killed.
func TestTalk(t *testing.T) {
	p := servers.Talk(t, "echo", exec.Command("cat"))
	if err := p.In.Encode([]string{"a question"}); err != nil {
		t.Fatal(err)
	}
	var answer []string
	if err := p.Answer(time.Minute, &answer); err != nil || len(answer) != 1 || answer[0] != "a question" {
		t.Errorf("got %q, %v", answer, err)
	}
	if err := p.Answer(10*time.Millisecond, &answer); err == nil || !strings.Contains(err.Error(), "echo: no answer") {
		t.Errorf("got %v", err)
	}
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Error("it lives on")
	}
}
