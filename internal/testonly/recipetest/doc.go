// Package recipetest has what the recipes' tests share: sessions that run until the test ends, faults for them, and a few checks.
// Only tests import it.
//
//	srv, nw := zktest.StartVirtual(t, zktest.Options{})
//	s := recipetest.Session(t, nw, "client")
//
// A [World] is a test with a server and a network, in a bubble; a package embeds it in a world of its own. [World.Steps] has
// things happen, in their order, to the first requests that match, and fails the test if one of them did not. A [Call] goes on in
// the background, where a test has it wait while something happens. [World.LongWaits] shows what calls log that wait for long.
//
//	w.Steps(recipetest.Before(isRecord, func() { w.Write(node, data) }), recipetest.LosesReply(isDelete))
//
// Everything that the package starts ends with the test, in a testing/synctest bubble and outside. It has no other state.
//
// # Concurrency
//
// Functions call Fatal when something fails, so they belong on the test's goroutine. A function that stops a session may be
// called from any goroutine, any number of times. Hooks of the server, those of Steps among them, run on the goroutines of its
// connections, several of them at the same time: they report by [World.Check], and [World.Write] does.
package recipetest
