// Package partitioner is kazoo's SetPartitioner: members of a party divide a fixed set of items, and a lock for each item
// prevents that two members work on one. Python and Go processes can divide a set together.
//
// # Overview
//
// [SetPartitioner.Run] calls a function with this member's items, under a context that ends when they are to be given up, and
// again with other items when the members have changed:
//
//	err := p.Run(ctx, func(ctx context.Context, items []string) error {
//		held := partitioner.Hold(ctx) // held.Valid() right before each effect
//		…
//	})
//
// Code that is ported from kazoo can use its four states instead: [SetPartitioner.Start], then WaitForAcquire, Allocation,
// ReleaseSet, Finish.
//
// # State
//
//	<path>, <path>/party, <path>/locks   persistent, empty, created when missing, never deleted
//	<path>/party/<guid>-<identifier>     a member: ephemeral, data: the identifier
//	<path>/locks/<item>                  persistent, the directory of an item's lock
//	<path>/locks/<item>/<guid>__lock__<sequence>
//	                                     its contenders: ephemeral, empty
//
// The set itself is not in ZooKeeper: give the same set to all members.
//
//	ALLOCATING ──all locks acquired──► ACQUIRED ──members changed, trust or a lock lost──► RELEASE
//	    ▲                                  │                                                  │
//	    └──────────────────────────── ReleaseSet ─────────────────────────────────────────────┘
//	any of them ──session expired or closed, Finish──► FAILURE
//	ALLOCATING ──an error that would come again──► FAILURE, unless it is a refusal (see Guarantees)
//
// A member knows that its session has expired when it reaches a server again. Trust has ended before that.
//
// While ALLOCATING nothing happens until the members have not changed for the time boundary. Then each member sorts items and
// members, the function picks the member's share, and the member waits for the locks of the share's items. If the members change
// meanwhile it releases its locks and starts again. It acquires many locks at once if nobody has them. It waits for a lock that
// somebody has as kazoo does: while waiting, the member holds only locks of items that come earlier in its share.
//
// # Guarantees
//
//   - No two processes, in Go or Python, have the same item, where a Go process has the items of a valid allocation
//     ([Allocation.Valid]), as long as nobody else deletes contenders.
//   - The cause of an allocation's end is [ErrMembersChanged], the cause that ended the hold on one of its locks, [ErrReleased]
//     or [ErrFinished]. The member keeps its locks until ReleaseSet or Finish is called, or Run's function has returned.
//   - If all members run with the same set, function and boundary, and with different identifiers, and do not change for the time
//     boundary, each item belongs to exactly one of them, as soon as its earlier owner has given it up.
//   - Members that disagree about their shares do not wait for each other in a circle, if their functions pick items in one
//     order.
//   - If two members have one identifier, the later one gets [ErrDuplicate] once the other has outlived the time for which a dead
//     member's znode can exist, some 45 s ([session.Session.MaxExpiry]).
//   - When Finish or Run has returned without an error, the znodes of this member and of all contenders for locks that it had or
//     waited for are deleted, or their session is over. [ErrUnfinished] says that they may still exist.
//   - Once a partitioner has joined, no refusal by the servers ends its Run, or a Start that has returned. The first join that is
//     refused ends Run or Start with the error. So does the partition function's error, always.
//   - In FAILURE this process is no member, or is leaving. Run starts again when its function has returned, not before.
//
// # Not guaranteed
//
//   - That Run returns at once when its context ends: it waits for the function, and then for the servers, for one session
//     timeout at most.
//   - Progress while members come and go faster than the time boundary: after each change all of them give up all items and wait
//     again.
//   - That members notice when they were given different sets, functions or orders. Python sorts integers as numbers if they are
//     int there, and as text if they are str: see [Options].Order.
//   - That a later Python member with the identifier of a Go member notices that.
//   - Items are not escaped unless [Options].Escape says so: a/b makes two levels, as in kazoo. New refuses items that are one
//     path after kazoo's normalisation, empty ones, and those that are named like a lock's contender.
//   - A share of any size. The paths of a session's ephemeral znodes must not take more than its budget
//     ([session.Options].EphemeralBudget, 512 KiB), which is enough for about 5,000 locks with paths of 50 bytes. A member whose
//     share takes more, because others have left, fails with an error that says how many items it can hold, and wraps
//     [session.ErrEphemeralBudget]. If that happens to the last member, nobody has any item. [New] logs a warning if one member
//     can't hold the whole set. Run more members than are needed, or give items shorter paths. Raise the budget only together
//     with the servers' jute.maxbuffer, which is 1 MiB by default.
//   - Directories of locks are never deleted.
//   - That a context ends at once with its hold; [Allocation.Valid] is false at once. A process that calls Valid and is stopped
//     before its next step can still act after another has got the item. A store that must exclude that compares
//     [Allocation.Token], or the write carries a check of [Allocation.Node].
//
// # Where it differs from kazoo
//
// A lost connection that comes back while the session is trusted changes nothing; RELEASE comes with the end of trust. While
// ALLOCATING the end of trust starts the allocation again. There is a share only while ACQUIRED, and the partition function's
// failure is FAILURE. kazoo has no MaxPartitionTime. WaitForAcquire returns after 30 s in any state, as kazoo's wait_for_acquire
// does, but reports whether the state is ACQUIRED; in FAILURE it returns an error.
//
// # Disagreements, refusals and ends
//
// The item's lock gives it to one process, not what members know of each other. Members disagree for a moment, or because they
// were given different sets: one then acquires its whole share before the other. Two members of one identifier both count until
// the later one ends, as in kazoo; a warning in the log comes at once, and without the end some items would stay without an
// owner.
//
// Run returns ErrUnfinished when its znodes were not deleted within a session timeout after it was to end, because the servers
// did not answer or refused to. Finish and Run return it when the session's Run ended first: then the znodes are deleted within
// one session timeout. Locks are kept to the end so that nobody gets an item while the work stops, and in FAILURE others leave no
// items to this process.
//
// An ACL or a quota may be wrong for a while: the log has the error, of the kind "refused", and the set is divided when that is
// allowed again.
//
// # Concurrency
//
// All methods may be called from any goroutine. One goroutine, from Start to Finish or while Run goes on, takes all decisions; it
// calls the partition function, which must not block. Other goroutines work for it: one reads the members, one keeps this
// member's znode in the party, up to 64 acquire locks, one watches each lock that this member has, and in RELEASE one waits for
// the end of the session. All end with FAILURE, or when this member's znodes are deleted; until then they keep the session open
// ([session.Session.KeepOpen]). Run calls its function on the goroutine that has called Run; a panic goes on there, after the
// items were given up.
package partitioner
