// Package allocator says which member of a group owns which partition.
//
// # Overview
//
// A [PartitionAllocator] is one member of a group. It watches who else is in the
// group and which partitions the group shares, and computes from both, by a pure
// function, the mapping that all members come to. There is no leader, and no
// message between members. The znodes are those of the Python library kiel, so
// that its members can be in the same group.
//
// A mapping says who should own what, not that nobody else still works on it:
// for that see package ownership, which runs an allocator.
//
//	a, err := allocator.New(s, "billing", "host-1", allocator.Options{
//		Seed:        map[string][]int32{"orders": {0, 1, 2}},
//		OnRebalance: func(ctx context.Context, r allocator.Rebalance) { … },
//	})
//	err = a.Run(ctx) // until ctx ends
//
// # State
//
//	party ────► members ─┐                    ┌► Snapshot(), Updates()
//	                     ├► coalesce ► compute ┤
//	sharedset ► set ─────┤   (timers)  (worker)└► OnRebalance, OnError (one goroutine)
//	zones ────► zones ───┘
//
// A change after calm is acted on at once; those that follow are coalesced
// (QuietPeriod, MaxDelay). What changes our own part does not wait: joining,
// leaving, the session, our seed. The result is an immutable [Snapshot].
//
// Each member publishes a record as the data of its znode:
//
//	{"v":1,"functions":["balanced/1","roundrobin/1"],"weight":2,"zone":"a","topics":["t"]}
//
// A function without a version is of version 1. weight, zone and topics may be
// absent. A record is bad if it is larger than 64 KiB, of another version, without
// a function or with more than 32 of them, or has a name that is not allowed;
// then, and if there is none (Python), the member counts as one that runs
// Options.PythonFunc.
//
// One more znode says in which zone each partition is best consumed, for allocation
// functions that look at it. Consumers write it from Kafka's metadata, other programs by
// [PartitionAllocator.SetZones]. It is versioned JSON of 1 MiB at most, enough for
// several hundred thousand partitions. What can't be understood is an error and counts as
// no zones, for all members alike; it is left as it is. A znode that an ACL keeps a
// member from reading counts as no zones too, so give all members the same access. Python
// members know no zones, and a group that has some runs a function that does not look at
// them.
//
// # Guarantees
//
//   - Members that have read the same members, set and zones, and are given
//     the same PythonFunc, hold the same mapping. The group runs the first
//     function, in the list of its first member by name, that all members can
//     run in the same version; none is [ErrFuncMismatch].
//   - A snapshot rests on members, set and zones read under one and the same
//     incarnation of the session, never on a mixture. When that incarnation ends
//     a snapshot says so: it is not joined. In each new one there is a new
//     snapshot, even if nothing else changed; until all were read again the
//     last one stays.
//   - An allocation function that fails, panics, forgets a partition, names a
//     stranger or takes longer than 5 s leaves the last good mapping in force,
//     and so does a set that can't be read. Err of the snapshot and OnError tell.
//     It runs on a goroutine of its own; however long it takes, the loss of the
//     session, leaving and stopping take their course.
//   - A set item that is not name:number is reported and allocated to nobody.
//   - A partition whose topic no member asks for is assigned to nobody and stays in the
//     set; the others are divided as if the set did not hold it. Snapshot.Unwanted names
//     such topics, and each is reported once to OnError ([ErrUnwantedTopic]). A member
//     whose record names no topics asks for all.
//   - While a member has no record, topics do not matter: no function sees them, the
//     whole set is divided, and so members in Go and in Python come to the same mapping.
//     Then a member may get a partition of a topic that it does not ask for, as it may
//     from a function that does not look at topics. It should not claim such a partition,
//     which then has no owner; package consumer sees to that by Accept of package
//     ownership.
//   - The seed is added when the member joins for the first time, whenever the
//     set's znode is missing or was made anew, and when the servers were restored
//     from a backup that lacks part of it. An empty set is not a missing one. A set
//     that can't be read is not written.
//   - A partition that somebody removes from the set is no part of the seed of the
//     members that run, even if they had no session at the time.
//   - Snapshots have growing versions. The last one, when Run has ended for
//     whatever reason, is not joined. With [ErrNameTaken] it is published before
//     Run returns.
//   - OnRebalance is called for each mapping that was applied and each change of
//     the own share, OnError for each error; in order, one call at a time, never
//     after Run has returned. Behind a slow call what waits merges into one whose
//     difference is taken to what was delivered last.
//
// # Not guaranteed
//
//   - That two members act on a change at the same time, or that a partition
//     has one owner at a time: see package ownership.
//   - That each state of the group becomes a snapshot: changes are coalesced.
//   - That the mapping is computed again after the function failed: a function
//     is pure, so it is tried when something changes or Rebalance is called. Until
//     then what the others' mapping gives to this member has no owner.
//   - That a partition removed from the set stays removed when a member starts
//     later that has it in its seed, or while a consumer asks for its topic.
//   - That the seed is added to a set from a backup that was written more often
//     since than the backup lost, before this member read it: what it lacks looks
//     as if it had been removed.
//
// # Concurrency
//
// The goroutine that calls Run owns all state; it runs no user code and waits
// for nobody. All methods may be called from any goroutine, and by callbacks.
// Stop within a callback does not wait, because Run waits for the callback.
// A callback that never returns makes Run return [ErrStuck] after StopTimeout;
// its goroutine is the one that remains. Run needs the session to run, and holds
// it; end the session after Run has returned, or with the same context.
//
// # Paths
//
//	/kiel/groups/<group>/members           GroupPath, MembersPath
//	/kiel/groups/<group>/members/<member>  ephemeral; data: the record
//	/kiel/groups/<group>/partitions        PartitionsPath; data: the set
//	/kiel/groups/<group>/zones             ZonesPath; data: the zones of partitions
package allocator
