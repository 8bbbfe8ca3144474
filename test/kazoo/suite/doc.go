// Package suite runs kazoo's own tests, as they are, on the servers that demo-consumer has in memory.
//
//	go test ./test/kazoo/suite
//	go test ./test/kazoo/suite -only='test_lock.py' -v
//
// The tests are of zktest, with a client that was not written for it: kazoo's tests must pass as on a real server. A few
// processes of pytest share one server; a plugin stands in for the servers that kazoo's harness would start. All tests must pass
// but those that the lists in suite_test.go name, with the reason.
package suite
