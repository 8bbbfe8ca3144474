// Package zktest is an in-memory ZooKeeper server for tests.
package zktest
