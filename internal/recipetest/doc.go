// Package recipetest has what the tests of the recipes share: sessions that run as long as a test does, faults for them,
// and a few checks. Only tests import it.
//
//	srv, nw := zktest.StartVirtual(t, zktest.Options{})
//	s := recipetest.Session(t, nw, "client")
//
// All that it starts ends with the test, in a testing/synctest bubble as well as outside. It has no other state.
//
// # Concurrency
//
// Functions end the test by Fatal when something goes wrong, so they belong on its goroutine. A function that stops a
// session may be called from any, any number of times.
package recipetest
