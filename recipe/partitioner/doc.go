// Package partitioner is kazoo's SetPartitioner: members of a party divide a fixed set of
// items, and a lock for each item sees to it that no two work on one. Python and Go
// processes can divide a set together.
//
// # Overview
//
// [SetPartitioner.Run] calls a function with the items that are ours, under a context that
// ends when they are to be given up, and again with other items when the members have
// changed:
//
//	err := p.Run(ctx, func(ctx context.Context, items []string) error {
//		held := partitioner.Hold(ctx) // held.Valid() right before each effect
//		…
//	})
//
// Who ports code from kazoo finds its four states instead: [SetPartitioner.Start], then
// WaitForAcquire, Allocation, ReleaseSet, Finish.
//
// # State
//
//	<path>, <path>/party, <path>/locks   persistent, empty, made when missing, never deleted
//	<path>/party/<guid>-<identifier>     a member: ephemeral, data: the identifier
//	<path>/locks/<item>                  persistent, the directory of an item's lock
//	<path>/locks/<item>/<guid>__lock__<sequence>
//	                                     its contenders: ephemeral, empty
//
// The set itself is not in ZooKeeper: all members must be given the same.
//
//	ALLOCATING ──all locks are ours──► ACQUIRED ──members changed, trust or a lock lost──► RELEASE
//	    ▲                                  │                                                  │
//	    └──────────────────────────── ReleaseSet ─────────────────────────────────────────────┘
//	any of them ──session expired or closed, Finish──► FAILURE
//	ALLOCATING ──no use in trying, see the errors──► FAILURE
//
// That a session has expired shows when a server is reached again: before that, trust has ended.
//
// While ALLOCATING nothing happens until the members have not changed for the time boundary.
// Then each member sorts items and members, the function picks its share, and it waits for
// the locks of these. If the members change meanwhile it gives back what it has and starts
// again. Locks that nobody has are acquired many at once. A lock that somebody has is waited for as in
// kazoo: while waiting, the member holds only locks of items that come earlier in its share.
//
// # Guarantees
//
//   - No two processes of both languages have an item, those in Go with an allocation that is
//     valid ([Allocation.Valid]), as long as nobody else deletes contenders. It is the lock of the
//     item that says so, not what members think of each other.
//   - An allocation's context ends with the cause: [ErrMembersChanged], what ended the hold of
//     one of its locks, [ErrReleased] or [ErrFinished]. Its locks stay ours until ReleaseSet or Finish is
//     called, or Run's function has returned, so that nobody follows while the work stops.
//   - With all members running, with the same set, function and boundary, and different
//     identifiers, each item belongs to exactly one after the time boundary of quiet, as soon
//     as those who had it have given it up.
//   - Members that disagree about who has what, for a moment or because they were given different sets,
//     do not wait for each other in a circle, if their functions pick items in one order: one acquires
//     its whole share before the other.
//   - The same identifier twice is an error, not items that nobody has: [ErrDuplicate] goes to
//     the member that came later, once the other has outlived what a dead member's znode
//     could, which takes some 45 s ([session.Session.MaxExpiry]). A warning in the log comes at once.
//     Until then both count, as in kazoo.
//   - When Finish or Run has returned without an error, our member and all our contenders, of
//     locks that we had or waited for, are gone, or went with their session. [ErrUnfinished]
//     says that they may still stand: Run returns it when they were not deleted within a session
//     timeout after it was to end, because the servers were not heard of or refused to. Both return
//     it when the session's Run ended first: then all goes within one session timeout.
//   - In FAILURE we are no member, or about to be none: others leave nothing to us. Run begins anew
//     when its function has returned, not before.
//
// # Not guaranteed
//
//   - That Run returns with its context or its function: it waits for the function, and then for
//     the servers, for one session timeout at most.
//   - Progress while members come and go faster than the time boundary: each change makes all
//     of them give up everything and wait anew.
//   - That members who were given different sets, functions or orders notice. Integers are
//     sorted as numbers by Python if they are int there, and as text if they are str: see
//     [Options].Order.
//   - A Python member with our identifier that came later never learns of it.
//   - Items are not escaped unless [Options].Escape says so: a/b makes two levels, as in kazoo.
//     kazoo does not escape. Items that are one path after kazoo's normalisation, empty ones,
//     and those that look like a lock's contender are refused.
//   - A share of any size. The paths of a session's ephemeral znodes must not take more than its budget
//     ([session.Options].EphemeralBudget, 512 KiB), which is enough for about 5,000 locks with paths of
//     50 bytes. A member whose share takes more, because others have left, ends with an error that says how
//     many items it can hold, and wraps [session.ErrEphemeralBudget]. If that happens to the last member,
//     nobody has any item. [New] logs a warning if one member can't hold the whole set. Run more members
//     than are needed, or give items shorter paths. Raise the budget only together with the servers'
//     jute.maxbuffer, which is 1 MiB by default.
//   - Directories of locks are never deleted.
//   - A context ends a moment after the hold has: [Allocation.Valid] knows at once. A process that asks it and
//     is stopped before its next step can still act after another has the item. A sink that must
//     not see that compares [Allocation.Token], or the write carries a check of [Allocation.Node].
//
// # Where it differs from kazoo
//
// A lost connection that comes back while the session is trusted changes nothing; RELEASE
// comes with the end of trust. While ALLOCATING the end of trust starts the allocation anew.
// A share is there only while ACQUIRED, and the partition function's failure is FAILURE.
// MaxPartitionTime is ours. WaitForAcquire returns after 30 s, whatever the state, as kazoo's
// wait_for_acquire does, and says whether it is ACQUIRED; FAILURE is an error.
//
// # Concurrency
//
// All methods may be called from any goroutine. One goroutine, from Start to Finish or while
// Run goes on, takes all decisions; it calls the partition function, which must not block.
// Others work for it: one looks at the members, one keeps our znode
// among them, up to 64 acquire locks, one watches each lock that we have, and in RELEASE one waits for the end of the
// session. All end with FAILURE, or when what we had is given up; until then they keep the session
// open ([session.Session.Hold]). Run calls its function on the goroutine that has called Run; a panic
// goes up from there, after the items were given up.
package partitioner
