// Package ownership gives each partition of a group to one owner at a time.
//
// # Overview
//
// An allocator tells every member which partitions are its own, but each member
// hears it at its own time, and a member that is cut off hears nothing. An [Owner]
// therefore claims a partition in ZooKeeper before it works on it, and lets go of
// the claim only when its work is done:
//
//	owner, err := ownership.New(alloc, func(ctx context.Context, c *ownership.Claim) error {
//		for ctx.Err() == nil && c.Trusted() {
//			// one piece of work
//		}
//		return nil
//	}, ownership.Options{})
//	err = owner.Run(ctx)
//
// The handler is called once for each partition that this member owns. The owner
// runs the allocator, and leaves the group in order when Run's context ends: first
// the member znode goes, so that the others know where each partition goes next;
// then each partition is released as soon as its handler has returned.
//
// # State
//
//	      the plan says mine      multi[set epoch, create owner]      the Observer was told
//	Free ───────────────────► Claiming ───────────► Ours ──► Announcing ──────────────────► Open
//	 ▲ ▲                       │ │ ▲                 ▲ │                  the plan says another's, │ │ somebody has changed
//	 │ │ that is gone          │ │ │         it is   │ │ not wanted            or Stop             │ │ the claim's znodes,
//	 │ └────────── Waiting ◄───┘ │ │ gone    ours    │ │                                           ▼ │ or trust has ended
//	 │        another's exists   ▼ │                 │ │                                    Revoked  ▼
//	 │                no answer: Unsure ──► Looking ─┘ │         the handler has returned │    Unsure, and no commit
//	 │                     read, after a Sync          ▼         or RebalanceTimeout      ▼
//	 └─────────────────────────────────────────── Releasing ◄──────────────────────── Closing
//	               multi[check epoch, delete owner]            the Observer was told
//
// These are the states of a claim in package machine, which decides what is next; docs/semantics.md has them in a table, with what
// [Owner.Status] shows. The answer to the multi proves the claim and has its token. A request without an answer is looked at, as is one whose
// answer comes in a later incarnation: the claim is possibly ours until a read after a Sync has shown it.
//
// Both znodes of a claim are watched, by session.DataWatches: they cost no request while nobody changes them. Besides, once per session
// timeout the group's claims are compared with what this member thinks it holds. They are listed for that when the metadata of
// their parent show that some were created or deleted; then 16 of its own claims, in turn, are read too.
//
// # Guarantees
//
//   - At most one trusted owner: while [Claim.Trusted] is true, no other member's
//     is, for the same partition. It has to be asked before each effect.
//   - A handler that is told to finish ([ErrRevoked]) may finish and commit: the
//     claim goes only after it returned, or after RebalanceTimeout. Then, and when
//     the session's trust ends or somebody removes the claim, it is lost
//     ([ErrLost]): [Claim.Context] ends and Trusted is false.
//   - [Claim.Token] grows with every change of owner. A store that refuses tokens
//     below the greatest it has seen is safe against an owner that went on.
//   - At most one handler runs for a partition in one Owner at any time, over all
//     its incarnations.
//   - A handler that does not return holds up its own partition in this member
//     and nothing else. Every partition that some live member is told to own is
//     owned again within a bound: the time that handlers take, at most
//     RebalanceTimeout, or the session timeout and a tick after a crash; unless a
//     persistent znode stands in the place of its claim, which an operator has to
//     delete ([ErrPersistentClaim]); or an ephemeral one of a session that is no member's
//     ([ErrForeignClaim]).
//   - Observer hears of Claimed after the claim was acknowledged, and of Releasing before the release is sent. Claimed may be told
//     before the claim is watched: if somebody has removed it meanwhile, Lost follows.
//   - A release is never a delete alone, so it can't remove another's claim.
//   - When the servers go back to a backup, claims that were released since stand again. A member
//     whose session lives on releases those of its session within a session timeout.
//
// # Not guaranteed
//
// Exactly-once effects: a member that is stopped between asking Trusted and its
// effect has the effect later. The token is for that. Exclusivity towards members
// of the Python library, which know no claims; in the moments after an operator
// removes a claim or kills a session, until the watch on it fires (at worst until
// trust ends, and, once somebody has taken from the session the right to read the znode, until it is read in its turn); and when all
// servers lose their data or go back to a backup. Tokens
// start again when ZooKeeper's data is lost, and some come again after a backup. What a session holds is limited (about 7,900 claims):
// what does not fit stays unclaimed and is reported.
//
// # Concurrency
//
// One goroutine holds all state; requests run on a few workers, each handler on a
// goroutine of its own, the Observer and OnError on one each. None of the methods
// of [Owner] but Run and Stop blocks; all may be called from anywhere, only Stop
// not from a handler or callback for which Run waits. A handler may take its time,
// it delays only its partition. An Observer that blocks delays every opening and
// release; one that has not returned after RebalanceTimeout, or 5 s if that is more,
// makes the member leave.
//
// # Paths
//
//	/kiel/groups/<group>/owners/<topic>:<partition>   ephemeral, who owns it
//	/kiel/groups/<group>/epochs/<topic>:<partition>   persistent, never deleted, who claimed last
//
// <group> is the group's name as [kiel.GroupZnode] writes it.
//
// Both hold JSON:
//
//	{"owner": member, "version": of its snapshot, "id": of its Owner,
//	 "previous": the owner before, "reason": {"code": …, "names": […], "more": n}}
//
// The reason says why the partition came to its owner, with a code of package status.
// The previous owner is the holder of a claim that this member has waited for, or whom its
// last snapshot named; it is missing where neither is known. No request is
// made for either. Names in them are cut to 64 bytes, and there are 5 at most. Members of earlier
// versions write neither and ignore both. They are for people: nothing is decided by them.
// The mzxid of the epoch znode is the token, and equals the czxid of the owner znode
// because both are written in one transaction.
//
// [Inspect] reads all of it and describes the group, for a program that is no member; [Owner.Status] does so as a member sees it.
//
// # Log
//
// Up to 16 partitions that move in one change have lines of their own at level Info: "claimed"
// with token, reason and previous owner, "revoking" with the member to which the plan gives it, "released"
// with the time that the handler took. More have them at level Debug; the allocator's line for the change has counts.
// When trust ends one warning counts the partitions that stopped, and "resumed" tells when they
// are owned again, and how many are not because of a stuck handler. Errors of one kind are coalesced: the first, then one line in 10 s with a count, then "recovered".
// OnError gets each.
package ownership
