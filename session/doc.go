// Package session holds a ZooKeeper session and says for how long it may be trusted.
package session
