// Package zones reads and writes the znode that says in which zone each partition of a group is best consumed, for the allocation
// functions that look at zones. Members of a group must come to the same input, so they read the zones from one place instead of
// asking Kafka one by one.
//
// # Format
//
//	{"v":1,"zones":["a","b"],"topics":{"t":[0,1,-1,0]}}
//
// The field zones has the names. The field topics has for each topic, by partition id, the index of the partition's zone, or -1
// if it has none. Partitions and topics that are not there have no zone. If the znode is missing or empty, no partition has one.
//
// All other data, and more than 1 MiB, are unreadable: they count as no zones, with an error, and are never written over;
// somebody must repair or delete the znode. A version other than 1 is unreadable, too, so that members of an older program do not
// destroy data that they don't understand. Only the data decide whether they are readable, so all members judge alike.
//
// # Guarantees
//
//   - A change writes only the version that it has read, so it never undoes another change. One that changes nothing writes
//     nothing.
//   - After a lost reply, Update reads the znode after a Sync, and repeats a write only if it is not there.
//   - A view is of one incarnation. Run reads again on each hint of its watch, on each new incarnation, and at least once per
//     session timeout. A missing znode costs one read and one watch; the data are read only when they have changed.
//
// # Concurrency
//
// All methods may be called from any goroutine. Run uses its caller's goroutine alone. View never blocks. Update blocks until it
// is done or its context ends.
package zones
