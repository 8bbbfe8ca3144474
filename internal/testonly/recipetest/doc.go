// Package recipetest has what the recipes' tests share: sessions that run until the test ends, faults for them, and a few checks.
// Only tests import it.
//
//	srv, nw := zktest.StartVirtual(t, zktest.Options{})
//	s := recipetest.Session(t, nw, "client")
//
// Everything that the package starts ends with the test, in a testing/synctest bubble and outside. It has no other state.
//
// # Concurrency
//
// Functions call Fatal when something fails, so they belong on the test's goroutine. A function that stops a session may be
// called from any goroutine, any number of times.
package recipetest
