// Package allocfn holds the functions that say which member of a group gets
// which partition.
//
// # Overview
//
// Members of a group do not elect a leader and send each other nothing. Each
// of them reads the members and the partitions from ZooKeeper and calls the
// same function on them; because the function is pure, all arrive at the same
// mapping. A [Func] is such a function together with the name that members
// agree on.
//
//   - [RoundRobin] is the default of the Python library kiel, to the byte of
//     its result: partition k of the sorted set goes to member k mod n.
//   - [Range] is Kafka's range assignor: each topic is cut into runs of
//     consecutive partitions, one run per member.
//   - [FromKiel] makes a Func of a function written for kiel, which maps names
//     to names.
//
// A user's own function is a Func too. [Call] is the way to run any of them:
// it recovers panics and checks the result.
//
// # Items
//
// A partition is written "topic:id" in the group's set. [Parse] reads one item
// and [ParseAll] a whole set, in the order and with the meaning that kiel
// gives it, also where an item is not written as we would write it; so a mixed
// group of Python and Go members agrees. See [ParseAll] for what happens to an
// item that only one of the languages understands.
//
// # State
//
// None. The package does no I/O, starts no goroutine and keeps nothing between
// calls.
//
// # Guarantees
//
//   - The functions of this package are pure, total and deterministic: equal
//     inputs give equal results on every machine, in every process and with
//     every version of this package. They use integers only and never range
//     over a map to make a result. Golden vectors hold them to it.
//   - Each partition is given to exactly one member of the input, whenever
//     there is a member.
//   - RoundRobin: the numbers of partitions of any two members differ by at
//     most one. Range: the numbers of partitions of one topic of any two
//     members differ by at most one.
//
// # Functions that fail
//
// A function that panics, returns an error or a wrong result harms nobody's
// process: [Call] makes an error of it, and a member of a group keeps the last
// mapping that could be computed. So does one whose function does not return,
// for as long as it does not. Where the function fails on all members, which
// is what a pure function does, nothing moves, and what a member that went had
// stays without an owner.
//
// Where it fails on one member alone, because that runs another version of it,
// the others go on with the new mapping. The member keeps, and works on, what
// it had: nobody is given any of that before it lets go. What the new mapping
// gives to the member has no owner, a member whose first computation fails
// owns nothing. There is no bound to that: the function is called again when
// members or partitions change, or when it is asked for, and not before; a
// pure one would fail again. So make readiness part of how a new version is
// rolled out, and watch the errors.
//
// # Not guaranteed
//
//   - Few moves. RoundRobin and Range move most partitions when a member comes
//     or goes.
//   - Weights, zones and topics of members: RoundRobin and Range do not look
//     at them. The fields are there for functions that do.
//   - A user's function is not checked for being pure; that it gives the same
//     result in every process is up to its author. The usual mistakes: ranging
//     over a map, hash/maphash (seeded per process), sorting with ties,
//     floating point (architectures round differently).
//
// # Concurrency
//
// Everything may be called from any number of goroutines. Nothing blocks.
package allocfn
