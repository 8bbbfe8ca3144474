// Package ownership gives each partition of a group to one owner at a time.
//
// # Overview
//
// An allocator tells every member which partitions are its own, but each member hears of it at its own time, and a member that is
// cut off hears nothing. An [Owner] therefore claims a partition in ZooKeeper before it works on it, and releases the claim only
// when its work is done:
//
//	owner, err := ownership.New(alloc, func(ctx context.Context, c *ownership.Claim) error {
//		for ctx.Err() == nil && c.Trusted() {
//			// one piece of work
//		}
//		return nil
//	}, ownership.Options{})
//	err = owner.Run(ctx)
//
// The handler is called once for each partition that this member owns. The Owner runs the allocator, and leaves the group in
// order when Run's context ends: it deletes the member znode first, so that the others know where each partition goes next; then
// it releases each partition as soon as its handler has returned.
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
// These are the states of a claim in package machine, which decides what is next; docs/semantics.md has them in a table, with
// what [Owner.Status] shows. The answer to the multi proves the claim and has its token. A request without an answer is looked
// at, as is one whose answer comes in a later incarnation: the claim is possibly ours until a read after a Sync has shown it.
//
// Both znodes of a claim are watched, by session.DataWatches: they cost no request while nobody changes them. Besides, once per
// session timeout the group's claims are compared with what this member thinks it holds. They are listed for that when the
// metadata of their parent show that some were created or deleted; then 16 of its own claims, in turn, are read too.
//
// # Guarantees
//
//   - At most one trusted owner: while [Claim.Trusted] is true, no other member's is, for the same partition.
//   - A handler that is asked to finish ([ErrRevoked]) may finish and commit: the claim stays until it has returned, or
//     RebalanceTimeout has passed.
//   - When a claim is lost ([ErrLost]), [Claim.Context] ends and Trusted is false.
//   - [Claim.Token] grows with every change of owner, but for the exception below.
//   - At most one handler runs for a partition in one Owner at any time, over all its incarnations.
//   - A handler that does not return holds up its own partition in this member, and nothing else.
//   - Every partition that the plan gives to a live member is owned again within a bound, but for the exceptions below: the time
//     that handlers take, RebalanceTimeout at most; after a crash the session timeout and a tick.
//   - A release never removes another member's claim.
//   - The Observer is called with Claimed after the claim was acknowledged, and with Releasing before the release is sent.
//   - After the servers were restored from a backup, claims exist again that were released since. A member whose session lives on
//     releases those of its session within a session timeout.
//
// # Not guaranteed
//
//   - Exactly-once effects. A member that is stopped between asking Trusted and its effect has the effect later. A store that
//     refuses tokens below the greatest that it has seen is safe against that.
//   - One owner beside members of the Python library, which know no claims.
//   - One owner in the moments after an operator has removed a claim or killed a session: until the watch on the claim fires, at
//     worst until trust ends. Where somebody has also taken from the session the right to read the znode, until the claim is read
//     in its turn.
//   - One owner, or growing tokens, when all servers lose their data or go back to a backup.
//   - An owner for each partition. kiel_unclaimable_partitions counts those that this member does not claim: a persistent znode
//     ([ErrPersistentClaim]), or one of a session that is no member's ([ErrForeignClaim]), is in the claim's place; Accept has
//     refused it; its name can't be a znode's; the session has no room for it (some 7,900 claims); an earlier handler still runs.
//     A claim that ZooKeeper refuses is tried again, and so is the mapping when the allocation function has failed and something
//     changes.
//   - That a claim is watched when the Observer is called with Claimed: if somebody has removed it meanwhile, Lost follows.
//
// # Concurrency
//
// One goroutine holds all state. Requests run on a few workers, each handler on a goroutine of its own, the Observer and OnError
// on one each. Of the methods of [Owner] Run and Stop block, Alive until the loops answer or its context ends, and Status for a
// second at most. All may be called from any goroutine, but Stop not from a handler or a callback, for which Run waits. A handler
// may take its time: it delays only its partition. An Observer that blocks delays every opening and release; one that has not
// returned after RebalanceTimeout, or 5 s if that is more, makes the member leave.
//
// # Paths
//
//	/kiel/groups/<group>/owners/<topic>:<partition>   ephemeral, who owns it
//	/kiel/groups/<group>/epochs/<topic>:<partition>   persistent, never deleted, who claimed last
//
// <group> is the group's name as [kiel.GroupZnode] writes it. Both hold JSON:
//
//	{"owner": member, "version": of its snapshot, "id": of its Owner,
//	 "previous": the owner before, "reason": {"code": …, "names": […], "more": n}}
//
// The reason says why the partition came to its owner, with a code of package status. The previous owner is the holder of a claim
// that this member has waited for, or the one that its last snapshot named; it is missing where neither is known. No request is
// made for either. Names in them are cut to 64 bytes, and there are 5 at most. Members of earlier versions write neither and
// ignore both. They are for people: nothing is decided by them. The mzxid of the epoch znode is the token, and equals the czxid
// of the owner znode, because both are written in one transaction.
//
// [Inspect] reads all of it and describes the group, for a program that is no member; [Owner.Status] does so as a member sees it.
//
// # Log
//
// Partitions that move have the lines "claimed", "revoking" and "released". When trust ends one warning counts the partitions
// that stopped, and "resumed" says when they are owned again, and how many are not because of a stuck handler. docs/operating.md
// has all lines, when they are at level Debug, and how errors of one kind are logged. OnError gets each error.
package ownership
