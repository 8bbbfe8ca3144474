// Package allocator computes which member of a group is to own which partition.
//
// # Overview
//
// A [PartitionAllocator] is one member of a group. It watches the group's members and the partitions that they share. From both
// it computes, by a pure function, the mapping; all members compute the same one. There is no leader, and no message between
// members. The znodes are those of the Python library kiel, so members in Python can be in the same group.
//
// A mapping says which member should own a partition. Another member may still work on the partition: package ownership, which
// runs an allocator, makes sure that none does.
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
//	sharedset ► set ─────┤   (timers)  (worker)└► OnRebalance, OnError (one call at a time)
//	zones ────► zones ───┘
//
// The allocator acts at once on the first change after a quiet time; it coalesces those that follow (QuietPeriod, MaxDelay).
// Changes of this member itself do not wait: that it joins or leaves, that its session changes, that its seed is in the set. The
// result is an immutable [Snapshot].
//
// Each member publishes a record as the data of its znode:
//
//	{"v":1,"functions":["balanced/1","roundrobin/1"],"weight":2,"zone":"a","topics":["t"]}
//
// A function without a version has version 1. weight, zone and topics may be absent. A record is bad if it is larger than 64 KiB
// or of another version, if it has no function or more than 32 of them, or a name or a pattern that is not allowed. A member with
// a bad record, or without one (Python), counts as one that runs Options.PythonFunc.
//
// One more znode says in which zone each partition is best consumed, for allocation functions that look at it, as Kafka's
// assignors look at racks (KIP-881). Consumers write it from Kafka's metadata, other programs by [PartitionAllocator.SetZones].
// It is versioned JSON of 1 MiB at most, enough for several hundred thousand partitions. Data that can't be understood is an
// error and counts as no zones, for all members alike; nobody writes over it. If an ACL keeps a member from reading the znode,
// that member sees no zones, so give all members the same access. Python members know no zones; a group that has Python members
// runs a function that does not look at zones.
//
// # Topics
//
// An entry of Options.Topics is the name of a topic or a pattern: a regular expression (RE2, as in package regexp) that begins
// with ^ and must match the whole name. An exclusion is such an expression behind "!": the other patterns of the same list do not
// find the topics that it matches. So {"audit", "^orders-.*", "!^orders-test-.*"} asks for audit, for orders-eu, and not for
// orders-test-1.
//
//   - A name always counts, whatever exclusions say.
//   - Patterns find topics of the group's set. So a topic that comes into the set is found by all members at once, and their
//     records don't change. Patterns add nothing to the set; package consumer looks for topics in Kafka and adds them.
//   - No pattern finds a name that begins with "__", as the names of Kafka's own topics do, or a name that Kafka does not allow.
//   - A member whose patterns find nothing gets nothing. An allocation function sees the single topic ":" for it, because a list
//     without topics means all of them.
//   - A list may have 100 patterns and exclusions of 1,000 bytes each. Together they may take 1,000 steps. A character takes
//     about one step, and what is repeated up to n times, as in (ab){5}, takes n times its own steps.
//   - Patterns are of printable ASCII. They must not have \p, \P or named groups, which versions of Go read differently, or runes
//     by number (\x41, \101), of which classes may take long to read. Exclusions without a pattern are an error.
//
// A record that breaks a rule is a bad record. Versions of this package that know no patterns can't read records that have
// patterns, so bring all members of a group to this version before one of them gets a pattern.
//
// For 2,000 members with 20 different lists of 5 patterns and a set of 1,000 topics, the first mapping takes some 50 ms longer,
// and the mapping after a topic was added some 15 ms, because topics that were found before are kept. The worst list that is
// allowed takes some 2.5 s for 1,000 topics with the longest names, and 2.5 ms for each topic that is added.
//
// # Guarantees
//
//   - Members that have read the same members, set and zones, and are given the same PythonFunc, hold the same mapping. If there
//     is no function that all can run in the same version, that is [ErrFuncMismatch].
//   - A snapshot rests on members, set and zones read under one and the same incarnation of the session, never on a mixture. Each
//     new incarnation has a new snapshot, even if nothing else changed; when one ends there is a snapshot that is not
//     joined, which stays until members, set and zones were read again.
//   - When the allocation function fails, panics, leaves a partition unassigned, assigns one to an unknown member or takes longer
//     than 5 s, the last good mapping stays in force, as it does while the set can't be read. Err of the snapshot and OnError
//     report it. The function delays neither the loss of the session nor leaving nor stopping.
//   - A member that names a cluster ([Options].Cluster) is never in a mapping of its own while an older member names another: Run
//     ends with [ErrOtherCluster].
//   - A set item that is not name:number is reported and allocated to nobody.
//   - A partition whose topic no member asks for is assigned to nobody and stays in the set. Snapshot.Unwanted names such topics,
//     and each is reported once to OnError ([ErrUnwantedTopic]).
//   - While a member has no record, members in Go and in Python come to the same mapping.
//   - The seed is added when the member joins for the first time, whenever the set's znode is missing or was made anew, and when
//     the servers were restored from a backup that lacks part of it. A set that can't be read is not written.
//   - A partition that somebody removes from the set is not added again by the allocators that run then, even if they had no
//     session at the time. A consumer that asks for its topic adds it again.
//   - A snapshot says why its mapping differs from the one before ([Snapshot].Reason), and for each partition from which member
//     it came to its owner, when and why ([Snapshot.Move]), as far as this member saw.
//   - Snapshots have growing versions. The last one, when Run has ended for whatever reason, is not joined. With [ErrNameTaken]
//     it is published before Run returns.
//   - OnRebalance is called for each mapping that was applied and each change of the member's own share, OnError for each error;
//     in order, one call at a time, never after Run has returned.
//
// # Not guaranteed
//
//   - That two members act on a change at the same time, or that a partition has one owner at a time: see package ownership.
//   - That each state of the group appears in a snapshot: changes are coalesced.
//   - That [Inspect] shows one moment of the group: members, set and zones are read one after the other.
//   - That the mapping is computed again after the function failed: a function is pure, so it is called again only when something
//     changes or Rebalance is called. Until then a partition that the others' mapping gives to this member has no owner.
//   - That a partition removed from the set stays removed when a member that has it in its seed starts later, or while a consumer
//     asks for its topic, by name or pattern.
//   - That the seed is added to a set that was restored from a backup. It is not added if, before this member read the set, the
//     set had more writes after the restore than the backup had lost: the member can't tell the restore from a removal.
//
// # Functions, clusters, topics
//
// The group runs the first function, in the list of its first member by name, that all members can run in the same version. It
// runs on a goroutine of its own.
//
// A member reads the clusters in the records before each join, and again when it has joined. Older means that its znode was
// created first. Others may see the younger of two that join at once for a moment. Members that name no cluster count for
// nothing, nor do znodes that no session owns, and records that somebody has changed in place.
//
// The other partitions are divided as if the set did not hold those of topics that no member asks for. A member whose record
// names no topics asks for all. While a member has no record, topics do not matter: no function sees them, and the whole set is
// divided. Then a member may get a partition of a topic that it does not ask for. The same happens with a function that does not
// look at topics. The member should not claim such a partition, which then has no owner; package consumer refuses it by Accept of
// package ownership. An empty set is not a missing one.
//
// # Reasons, log and status
//
// Package status has the codes of reasons. If there are several, a partition has the one that is about it. A reader that skips
// snapshots misses only moves that another move followed. Rebalances that wait behind a slow call of OnRebalance are merged into
// one; its Added and Removed are the difference to the snapshot that was delivered last.
//
// The log has one line at INFO for each mapping that was applied, "rebalanced"; docs/operating.md has this and the other lines,
// and how errors of one kind are logged. [PartitionAllocator.Status] describes the group as this member sees it, in the model of
// package status, and [Inspect] does so for a program that is no member. Both bound the names that others have written. An
// allocator knows nothing of claims: see package ownership.
//
// # Concurrency
//
// The goroutine that calls Run owns all state; it runs no user code and waits for nobody. All methods may be called from any
// goroutine, and by callbacks. A callback calls Stop with its own context: then Stop does not wait, because Run waits for the
// callback. A callback that never returns makes Run return [ErrStuck] after StopTimeout; only the callback's goroutine remains
// then. Run needs the session to run, and keeps it open; end it after Run has returned, or with the same context.
//
// # Paths
//
//	/kiel/groups/<group>/members           GroupPath, MembersPath
//	/kiel/groups/<group>/members/<member>  ephemeral; data: the record
//	/kiel/groups/<group>/records/<entry>   ephemeral; the name has a member's name and its record's hash: see package party
//	/kiel/groups/<group>/static/<member>   persistent; the guard of a static member's name, package party's
//	/kiel/groups/<group>/partitions        PartitionsPath; data: the set
//	/kiel/groups/<group>/zones             ZonesPath; data: the zones of partitions
//
// <group> is the group's name as [kiel.GroupZnode] writes it: where a slash, a control or an emoji would be, it has %2F and such.
// Python kiel escapes nothing, so that members in Python can't be in a group of which the name is escaped.
package allocator
