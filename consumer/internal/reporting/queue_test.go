package reporting

import (
	"errors"
	"strings"
	"testing"
)

func TestErrorsDropTheOldest(t *testing.T) {
	dropped := 0
	q := newQueue(2, func() { dropped++ })
	for _, s := range []string{"a", "b", "c", "d"} {
		q.put(errors.New(s))
	}
	q.close()
	q.close()
	q.put(errors.New("e"))
	var got []string
	for err := range q.ch {
		got = append(got, err.Error())
	}
	if strings.Join(got, "") != "cd" || dropped != 2 {
		t.Errorf("got %v, %d dropped", got, dropped)
	}
}
