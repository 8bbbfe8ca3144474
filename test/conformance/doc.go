// Package conformance holds one suite that runs on zktest and on real ZooKeeper servers: what zktest answers is what the real one
// answers.
//
// Most cases are scripts: a few clients that speak the wire protocol byte by byte send requests, and everything that comes back
// (results, Stat, zxids, watch events, and their order) is written down as text, with zxids counted from the script's start and
// sessions called by their client's names. The text must be the one in testdata, which was taken from a real ZooKeeper 3.9.5.
// Most are recordings: their requests are those of the text itself. A new one is written as a file of requests, which this
// completes:
//
//	go test ./conformance/ -run TestZooKeeper39 -update
//
// Random sequences of requests, by several clients whose sessions end and expire, watches of all kinds, multis, and packets that
// no proper client sends, are run on zktest and on a real server, which must answer the same. A sequence that shows a difference
// is cut down to the steps that are needed for it, and printed with its seed. More of them:
//
//	go test ./conformance/ -run TestRandom -seed 100000 -seeds 20000
//
// Cases that need time (expiry, restarts), or a user's client, are ordinary tests with go-zookeeper or on the wire.
package conformance
