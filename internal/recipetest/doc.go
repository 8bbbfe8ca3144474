// Package recipetest is what the tests of the recipes have in common: sessions that run as long as a test does, trouble
// for them, and a few checks. It is imported by tests alone.
//
//	srv, nw := zktest.StartVirtual(t, zktest.Options{})
//	s := recipetest.Session(t, nw, "client")
//
// What it does ends with the test, in a testing/synctest bubble as well as outside: there is no other state.
//
// # Concurrency
//
// Functions end the test by Fatal when something goes wrong, so they belong on its goroutine. A function that stops a
// session may be called from any, any number of times.
package recipetest
