// Package zones is a znode that says in which zone each partition of a group is best consumed, for the allocation functions
// that look at zones. Members of a group must come to the same input, so they read it from one place instead of each asking
// Kafka.
//
// # Format
//
//	{"v":1,"zones":["a","b"],"topics":{"t":[0,1,-1,0]}}
//
// zones are the names; topics has for each topic, by partition id, the index of the partition's zone, or -1 if it has none.
// Partitions and topics that are not there have none. A znode that is missing, or empty, says that no partition has one.
//
// Whatever else is found, or more than 1 MiB, is unreadable: it counts as no zones, with an error, and is never written over;
// somebody must repair or delete the znode. That a version other than 1 is unreadable, too, keeps members of an older program
// from destroying what they don't understand. What is readable depends on the data alone, so all members judge alike.
//
// # Guarantees
//
//   - A change writes only the version that it has read, so it undoes nobody else's. One that changes nothing writes nothing.
//   - A write whose reply was lost is looked at after a Sync, and made again only if it is not there.
//   - Views are of one incarnation each. The watch looks again on each hint, on each new incarnation, and at least once per
//     session timeout. A znode that is missing costs one read and one watch; the data are read only when they have changed.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run has one goroutine of its own, its caller's. View never blocks. Update
// blocks until it is done or its context ends.
package zones
