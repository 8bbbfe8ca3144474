// Package servers starts real ZooKeeper servers and Kafka brokers, and any other program, as children of a test.
//
//	zk := servers.StartZooKeeper(t, servers.ZooKeeperOptions{TickTime: 500 * time.Millisecond})
//	kafka := servers.StartKafka(t, servers.KafkaOptions{})
//	run(zk.Addr(), kafka.Brokers())
//
// Tests of a package that leave the brokers alone can share them: see [Shared].
//
// What they need is installed by `make setup`; a test that finds it missing fails, it never skips.
//
// # Guarantees
//
//   - A server is ready when its Start function returns: it was asked itself, and it answered with what only this very server
//     knows (its data folder, its cluster's id). An open port proves nothing, it may be somebody else's.
//   - Servers listen on the loopback address only, on free ports that stay theirs over a restart; several packages may start
//     servers at the same time.
//   - When the test ends, its servers are killed and waited for. When the test process ends in any other way (a panic, kill -9),
//     the kernel kills its children: see [Start].
//   - When the test has failed, the folders with the servers' logs are kept, and the path and the last lines are printed.
//
// # Not guaranteed
//
//   - That a free port of [FreePorts] stays free until it is used: the Start functions then retry with other ports; other users
//     of FreePorts must do the same.
//   - That data outlives the test: folders go with it, of a failed test only logs and configuration stay.
//   - That what a child starts itself ends with it, and, but on Linux, that children end with a test process that was killed.
//   - That servers with small heaps and a disk shared with the tests are as fast as servers elsewhere.
//
// # Concurrency
//
// Methods end the test by Fatal when something goes wrong, so they belong on the test's goroutine. Addresses never change and may
// be read anywhere.
package servers
