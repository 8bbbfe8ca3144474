// Package suite runs kazoo's own tests, on the servers that demo-consumer has in memory and on a real ZooKeeper.
//
//	go test ./test/kazoo/suite
//	go test ./test/kazoo/suite -run=RecipesInGo -only='test_lock.py' -v
//
// TestSuite runs them all as they are, on the servers in memory. It is of zktest, with a client that was not written for it:
// kazoo's tests must pass as on a real server.
//
// TestRecipesInGo runs those of recipes, with this library's recipes in place of kazoo's. A plugin of pytest
// (recipes_in_go.py) gives the tests objects with kazoo's methods, which ask a bridge in the process of the Go test, by lines of
// JSON, for what an object in Go shall do. It is of the recipes: what kazoo's users rely on must be so in Go.
//
// A few processes of pytest share one server; a plugin (servers_in_memory.py) stands in for the servers that kazoo's harness
// would start. All tests must pass but those that the lists in suite_test.go and golang_test.go name, with the reason, and a test
// that is to fail must not pass.
package suite
