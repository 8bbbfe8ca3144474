package session_test

import (
	"testing"

	"github.com/kielgo/kiel/internal/testonly/noerr"
	"github.com/kielgo/kiel/session"
	"github.com/kielgo/kiel/zktest"
)

func BenchmarkIncarnation(b *testing.B) {
	_, address := zktest.Start(b, zktest.Options{})
	s, err := session.New([]string{address}, session.Options{})
	noerr.Must(b, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(b.Context()) }()
	b.Cleanup(func() { <-done })
	inc, err := s.Incarnation(b.Context())
	noerr.Must(b, err)
	b.Run("Trusted", func(b *testing.B) {
		for b.Loop() {
			if !inc.Trusted() {
				b.Fatal("not trusted")
			}
		}
	})
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			noerr.Last(b)(inc.Get(b.Context(), "/"))
		}
	})
}
