// Package exampletest runs a ZooKeeper for examples, which have no testing.TB. It is imported by tests alone.
//
//	zk := exampletest.StartZooKeeper()
//	defer zk.Stop()
//	s, err := session.New(zk.Addrs, session.Options{})
//
// # Concurrency
//
// Stop waits until every client has closed its connection: first end what runs on the server, or it waits for ever.
package exampletest
