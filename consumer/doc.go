// Package consumer consumes Kafka topics in a group whose members share the partitions through ZooKeeper. A [Group] is a
// sarama.ConsumerGroup: handlers and wrappers written for sarama's groups work after changing the constructor. New programs may
// prefer [Group.Run], which calls a function with a [Partition].
//
// # Overview
//
//	group, err := consumer.NewGroup(zookeeper, brokers, "billing", consumer.Options{})
//	defer group.Close()
//	err = group.Consume(ctx, []string{"orders"}, handler)
//
// or, without sarama's interfaces:
//
//	err = group.Run(ctx, []string{"orders"}, func(ctx context.Context, p *consumer.Partition) error {
//		for m := range p.Messages() {
//			fmt.Println(string(m.Value))
//			p.Mark(m)
//		}
//		return nil
//	})
//
// A function that stores many messages at once reads them by [Partition.Poll], and goes back to what it could not store by
// [Partition.Seek].
//
// The examples show these as whole programs, which handle errors and signals. The page docs/semantics.md lists the errors that end
// a call, and what to do about each.
//
// Consume and Run add the partitions of their topics to the group's set (package allocator), claim those that the mapping gives
// to this member (package ownership), and call the handler, which is ConsumeClaim or the function, for each of them. When a call
// ends before its context, the member stays in the group and waits for the next call. Each member refreshes the metadata of its
// topics at least once a minute, or once in Config.Metadata.RefreshFrequency if that is less, at times of its own. In one write
// it adds the partitions that the set lacks: those that Kafka has added to the topics, and those that somebody has removed from
// the set. Topics are never created in Kafka.
//
// Nothing leaves the set by itself. When no member asks for a topic by name any more, [Group.RemoveTopic] removes it. RemoveTopic
// fails with ErrTopicInUse while a member asks for the topic by name. A member that asks by pattern adds the topic again, if
// Kafka has it.
//
// A partition is opened in this order: claim → Options.Fence → read the committed offset → commit the start position, unless it
// is stored already → read. It is closed in this order: Messages ends → the handler returns → its marks are committed → the claim
// is released. When a call ends and the member stays, the claim is not released: the next call opens the partition again, from
// Options.Fence on.
//
// # Eager and incremental sessions
//
// Sessions of Consume are eager or incremental, by sarama's own rule: incremental if all strategies in Config support the cooperative
// protocol, as sarama.NewBalanceStrategyCooperativeSticky does; else eager, which is the default. Rebalance.Strategy counts before
// GroupStrategies. With Options.ReopenPartition sessions are incremental, and Run always works so. Members of both kinds share a
// group. docs/sessions.md says which kind is for whom.
//
// An eager session is for handlers that make state in Setup from Claims, or end with the session's Context. Setup is called when the
// member holds the partitions that the plan gives to it; Consume waits a second at most for those that others have not given back
// yet. Claims is exactly what is held, from Setup to Cleanup. When that changes, the session ends: Context with the cause
// sarama.ErrRebalanceInProgress, then Messages; when each ConsumeClaim has returned, Cleanup is called; then marks are committed, what
// moves is released, and Consume returns nil. What stays is kept, and the next call goes on with it. A partition that is lost ends
// the session too, with the cause sarama.ErrSessionHeartbeatFailed. A partition that is gained ends it when all gained ones are held, or
// a second after the first; but not a session that is younger than a second, or, when sessions follow each other faster, than up to 10 s.
//
// The Cleanup of a former owner has returned before Setup is called here if that owner is eager too, did not lose its claim, and its
// Cleanup returned in the first half of its time (docs/differences.md, "The last commit"). State that it writes then is complete. That does not
// hold beside incremental members, members of earlier versions or of Python, and after a crash.
//
// An incremental session lasts as long as its call. It takes and gives single partitions, and the others go on.
//
// Offsets are stored in Kafka, under the group's name, so the usual tools show them. The member commits them without joining a
// group of Kafka's protocol: one request every CommitInterval for all marked partitions, and one request at once for partitions
// that are given up together, or more where one would be too large for Kafka. A commit's metadata is
// "kiel1;<ids>;<token>/<partitions>;" and then the text given to MarkMessage, of up to [MaxMetadata] characters. <ids> are those
// of the topic, the ZooKeeper tree and the Kafka cluster, in base64. <partitions> is the topic's number of partitions when the
// group first consumed it. A partition with a higher number is new, and starts at its first message. For a topic that was created
// again <partitions> is at most that of the old topic. [MetadataText] takes the text out again.
//
// # Topics
//
// Members of a group may consume different topics, as in a rolling deploy that adds one. A partition goes to a member that
// consumes its topic, if the group's function looks at topics; package allocfn says which functions do. Partitions of topics that
// no member consumes stay in the group's set and have no owner until a member that consumes them joins. Each member logs such a
// topic once, as a warning, and sends nothing about it to Errors; kiel_unwanted_partitions counts the partitions.
//
// All members need the same topics if the group's function does not look at topics, or if members of Python kiel are in the
// group. Python members know no topics, so Go members ignore topics too, to compute the same mapping. A partition that is then
// assigned to a member that does not consume its topic has no owner; that member reports it ([ErrTopicMismatch]).
//
// # Topics by pattern
//
// An entry of the topics that begins with ^ is a regular expression (RE2): the member consumes the topics whose whole name it
// matches, now and later. So "^orders" matches orders alone, and "^orders.*" all topics that begin with orders. An entry that
// begins with !^ excludes topics: the member's patterns do not find those whose whole name the expression behind the ! matches. A
// topic that is named is consumed whatever exclusions say. The page of allocator has all rules and limits.
//
//	group.Consume(ctx, []string{"audit", "^orders-.*", "!^orders-test-.*"}, handler)
//
// Topics are found when the member joins and at each metadata refresh (see Overview). The first member that finds a topic adds
// its partitions to the set, in one write. The members' records have the patterns, so no record changes and no member joins anew;
// a partition that is consumed already moves only to even out shares. A member whose patterns match nothing joins, logs a
// warning, and waits.
//
//   - To find topics, a member asks Kafka for the metadata of all topics, on one more connection. It does not find a topic that
//     ACLs don't let it describe. It does find one that it may describe and not read, and that topic ends the call as a named one
//     does: exclude it.
//   - Kafka's own topics, __consumer_offsets and such, are never matched.
//   - A group that starts at the end (see Where a group starts) reads topics that exist when it joins from their ends, and a topic
//     that it finds later from its first message, because that was written while the group was running. A topic that was created
//     while no member ran, or that is first opened by a member that joined after it was created, begins at its end: messages written
//     before are not read. With Earliest no message is missed.
//   - A topic that is deleted in Kafka is missing ([ErrTopicMissing]) for the members that have found it, and [Group.RemoveTopic]
//     removes it for good: patterns do not keep it. A topic that Kafka still has is found again at the next metadata refresh
//     after RemoveTopic; to stop consuming it, exclude it.
//   - Where topics come and go, those that are gone stay missing, and in the set, until RemoveTopic is called. The series of a
//     topic that patterns have found end when it is in neither Kafka nor the set any more; those of a topic asked for by name
//     stay until Close.
//   - A topic that an operator adds to the set and that patterns match is consumed, too. If Kafka does not have it, it is
//     missing.
//
// # Where a group starts
//
// A partition starts at the offset that the group has committed. A new group, which has none on the topic, starts where
// [Options].From or FromTime says; without them, where Consumer.Offsets.Initial of Config says, which is the end unless changed; and without a Config
// at the first message. So a Config that is given for TLS alone makes a new group skip the messages that are there: set From to
// Earliest if it is to read them. One line of each member says where a new group starts and which option said so; it is a
// warning, with the number of offsets, if messages are skipped.
//
// A group that starts at the end begins at one moment: when its first member opens its first partition of the topic. A partition
// that is opened later, within 5 minutes, starts at the first message whose timestamp is of that moment or later, by the clock of that
// member. So what comes after the beginning is skipped only if its timestamp is older: because clocks differ, a producer has kept the
// message back, or gives it the time of something else. Commits have that moment in their metadata until the partition is opened
// again after these minutes.
//
// In a group that has an offset in any other partition of the topic, a partition without one starts at its first message: the topic got
// the partition later, its offset was deleted, or it has expired. An offset of an earlier topic of that name counts, too, and so
// does one that another program has stored. The same holds for a topic that was missing since the member
// joined. Otherwise, when all offsets are deleted, the group is new.
//
// # Zones
//
// A member with Options.Zone, or Config.RackID, writes for the group in which zone each partition is best consumed: the rack
// (broker.rack) of its preferred leader, which does not move when brokers are restarted. It does so when it starts and when it
// refreshes its metadata, in one znode that all members read (package allocator), so that they all compute the same mapping. It
// writes a zone that it has not seen before, that has changed or that the group does not know, and undoes nothing that others
// wrote, so members to which Kafka gives different answers don't write against each other. A partition that is not in Kafka's
// answer keeps its zone; SetZones of the allocator removes it. An error is reported to Errors and ends nothing.
//
// With Config.RackID, brokers name a replica in that rack to fetch from (KIP-392), if their replica.selector.class does so (Kafka
// 2.4, Config.Version 2.3 or newer). Both work together: by its zone a member gets partitions that are led in its rack, as far as
// shares allow, and it reads its other partitions from a follower in its rack, if there is one. Set RackID for both; Zone alone
// changes nothing about fetching.
//
// # Guarantees
//
//   - Each message is handed out at least once, in order within a claim, if handlers mark what they have done and not more.
//   - With Run, trust in the claim is checked by the clock in the same call that hands out a message, or a batch, on the
//     handler's own goroutine. A process that was stopped, and goes on after its trust has ended, hands out at most one message:
//     one whose check began before the stop.
//   - With Consume, trust is checked right before each message enters the channel that Messages returns. When the partition is
//     revoked or trust ends, the channel is emptied. A handler may receive a message behind those that were dropped; its mark
//     does not count, so that these are read again. Of each message that is dropped the Observer is notified again when it enters
//     a channel again.
//   - Trust is checked before each commit is sent. A lost partition is never committed: not by a late mark, not by Commit, not by
//     a handler that is stuck. A handler that still has a message in hand can check trust itself, by [Partition], [Claim] or
//     [Session].
//   - A start position that comes from a policy (see Where a group starts, or a reset), or from a mark or reset of Setup, is
//     committed before the first message is handed out, so that it is not decided twice. One that comes from a stored offset is
//     committed then, too, but for an offset that a member of this group has stored just so: of the same topic, with the ids of
//     this ZooKeeper tree and this cluster. That one is committed a session timeout later, if nothing was marked by then. With
//     Options.Fence it is committed only if new groups start at the end and the policy has chosen it. Each start by policy is in
//     the log, as a warning unless it is that of a new group that skips nothing. Starts within a second share one line with the
//     reason, their number, and the first partitions with their offsets. kiel_consumer_offset_resets_total counts them by reason:
//     "none" (no offset was committed), "out_of_range", "truncated" (an unclean leader election) or "recreated" (the topic is
//     another one).
//   - A position that Kafka does not have is always reported ([ErrOffsetReset]) and counted. Reading continues at the first
//     message of the log, or at the end if the position is beyond the end and From is Latest. With
//     Config.Consumer.Group.ResetInvalidOffsets false the partition stays closed and is tried again.
//   - A topic that was deleted and created again is another topic (KIP-516): its partitions are closed, offsets of the old topic
//     are neither used nor stored, and the new topic is read from its first message, whatever new groups do. While the topic is consumed
//     this takes up to a minute.
//   - An offset that was copied from another Kafka cluster, as MirrorMaker does, is where its partition starts, though the topic has
//     another id there. One warning says so. docs/moving-to-another-cluster.md has the rest.
//   - A topic that is deleted is reported once ([ErrTopicMissing]) and shown by kiel_consumer_missing_topics. Its partitions are
//     closed within about 10 s, and wait. When the topic is created again, that is logged, and its partitions are opened within
//     about 10 s. If the set has a partition that the topic does not have, that is reported once, and the partition is tried
//     again every few seconds.
//   - When Kafka's ACLs refuse a topic or the group (sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed), a
//     member does not try for ever. Consume and Run end with the error, for all topics: at once when the member starts, later,
//     and for topics that patterns have found, after a minute of refusals. docs/semantics.md has the rules, under "Refusals".
//   - With Options.Fence the program commits positions, in transactions. With Fence the group commits marks, if you make any, and
//     unless From is Earliest the start position that the policy has chosen. It commits nothing else. So mark nothing.
//   - Without Options.Fence the position is committed when a partition is opened, marked or not. A session timeout, 1 minute and
//     10 minutes later the owner reads the stored offset, and raises it again if a late commit of a former owner has lowered it.
//     Every 6 hours while nothing is marked it commits the position anew, because Kafka deletes an offset 7 days after its last
//     commit (KIP-186; 1 day before Kafka 2.0). When a partition is released in which nothing was marked, its position is
//     restored if it was deleted, or lowered by a late commit of a former owner. An offset that another program has stored stays.
//     That takes a second at most, and its failure is logged.
//   - Offsets that hold nothing for the handler, as of aborted transactions, are passed by the committed position when no message
//     before them is unmarked, with the exceptions in docs/semantics.md.
//   - A partition whose offset a transaction is about to store is opened when the transaction has ended (KIP-447; Config.Version
//     2.5 or newer).
//   - The commits that an owner repeats never lower an offset. They leave an offset alone that another program has stored, for
//     example in a transaction, until a mark is committed again. The group does not keep such an offset from expiring, which is
//     logged once per topic at Info. Kafka's tools see no members, so they let the offsets of a living group be deleted and
//     reset: stop the group first (docs/semantics.md). An offset that a mirror copies while the partition is open is written
//     over: the messages before it were handled in another cluster.
//   - A slow handler holds up no other partition. Fetched messages wait in a buffer, and the partition is left out of requests
//     until the buffer has room. Record batches wait there as they came, compressed or not. All buffers of a member together hold at
//     most Options.BufferBytes, and each at most four times Config.Consumer.Fetch.Default; only a record batch that is larger than a
//     partition's share exceeds that. On top come, for each partition, the record batch whose messages are being handed out, which is
//     not larger than Options.MaxBatchBytes when it is decompressed, and for each connection memory for an answer, which it keeps: as
//     much as BufferBytes at most for all together, if no answer is larger than what was asked for; for a minute more after
//     partitions have moved to other brokers.
//   - Opening a partition does not wait for a long poll. A broker that is silent for 5 s while an answer is due is asked on
//     another connection; the connection to one that sends slowly is kept. A broker that is slow to answer, as with tiered storage,
//     gets more time when 5 s were too little, up to Config.Net.ReadTimeout; partitions that move away from it meanwhile are read
//     from their new leader within about 10 s. A broker that throttles is sent no fetch while its throttle time lasts, for a minute
//     at most each time.
//   - After a change of leader the message read last is compared with the new leader's log, as KIP-320 demands. If an unclean
//     election has truncated the log below that message, an [ErrOffsetReset] is reported, and the partition continues at the
//     first offset that was written anew. The leader epoch is committed with the position (Config.Version 2.1 or newer), so the
//     next owner compares too, as does a member that was restarted.
//   - A record batch that can't be decoded, or is larger than sarama.MaxResponseSize, or than Options.MaxBatchBytes when it is
//     decompressed, ends its partition ([ErrUnreadable]) when the messages before it were handed out. Nothing is passed over:
//     docs/operating.md says how to go on behind the batch.
//   - A partition that makes no progress for 30 s although it has messages to read is fetched anew, once a minute at most;
//     kiel_consumer_fetch_resets_total counts that. An answer that takes long is no lack of progress.
//
// # Not guaranteed
//
//   - Exactly-once effects. After a crash messages are repeated that were not committed. [Claim] and [Session] have a fencing
//     token for stores that can refuse a former owner. Results that go to Kafka can be exactly-once by its transactions, with
//     Options.Fence.
//
//   - Kafka does not fence commits: the last write wins. Four things make a late commit harmless, not impossible: trust, short
//     TCP timeouts, connections that are aborted when trust ends, and the repeats. A repeat reads the stored offset right before
//     it writes. A commit of another program in between is overwritten. A late commit has what a former owner has done, so a
//     crash before the repeat costs a second reading at most. docs/semantics.md has the argument, under "Late commits".
//
//   - Nothing is shared with members of Kafka's own group protocol. While some are in the group of this name, nothing is opened
//     ([ErrGroupInUse]); nor is it while Kafka has a share group of this name. A member of which Kafka has stored an offset
//     notices that at its next commit, or after a minute, and opens partitions until then. With Options.Fence that is not
//     noticed.
//
//   - After an unclean leader election messages may be missed that replaced others at offsets already read, if there is no leader
//     epoch to compare. That is so if Config.Version is older than 2.1, if retention or compaction has removed the record batch
//     before the position, or if the position was stored by another program or lies where no message was read.
//
//   - The number of messages in a channel of Messages is bounded by Config.ChannelBufferSize alone, 256 unless changed. In a
//     process that was stopped for longer than its trust lasts, the handler may receive some of them before the channel is
//     emptied. Ask Claim.Trusted or Session.Trusted before each effect on the outside, or use Run.
//
//   - A graceful hand-over of a full channel may repeat one message: the one that the handler receives in the microseconds in which
//     the channel is emptied. Run has no channel, and repeats none.
//
// # Differences from a group of sarama
//
// docs/differences.md lists what a handler or a program may notice, with the reason for each: among others, a panic of a handler does not
// end the process, handlers have a limit of time when they are asked to return, MemberID is "", InitialOffset is an offset, and a
// partition that gets its first offset late starts at its first message. docs/sarama-config.md says what becomes of each field of
// Config.
//
// # Metrics
//
// With Options.Registerer the metrics of a member show:
//
//   - how far behind the member is; messages that wait in a channel count,
//   - how long handlers take and how often they fail,
//   - for how long a handler has taken no message though one waits, or has marked none that it took,
//   - how long offsets wait to be stored,
//   - why fetches fail, and for how long a partition has not been read,
//   - whether Kafka can be reached.
//
// A partition has series while it is open. The series of a topic stay, at 0 when none of its partitions is open, until Close, or
// until a topic that patterns have found is in neither Kafka nor the set any more. The time that handlers take is sampled, at
// most once in 10 ms for each partition. With Run it is the time that the handler takes for a message. With sarama's interfaces
// nothing shows when a handler has finished with a message. There the time between two receives from Messages is measured, and
// only while the channel is full: a handler that waits for its messages, as it should, is not measured.
//
// # Status and log
//
// [Group.Status] describes the group as the member sees it, in the model of package status: the members; the owner of each
// partition, since when and why; the offsets of the member's own partitions, and what a partition that is not read yet waits for;
// the errors that last; and the last changes. [Group.Alive] and [Group.Waiting] are for probes. Package health serves all three
// over HTTP.
//
// The log has the earlier changes. To find why a partition moved, look for its name, such as orders:7:
//
//	level=INFO msg=rebalanced component=allocator … reason="member-gone host-2" gone=host-2 moved=4 given=2 …
//	level=INFO msg=claimed component=ownership … partition=orders:7 token=… reason="member-gone host-2" previous=host-2
//	level=INFO msg=opened component=consumer … partition=orders:7 token=… offset=1733 origin=committed …
//
// A member that gives a partition up logs "revoking", with the next owner, and "released". When more than 16 partitions move in
// one change, only the line of the change is at Info; those of the partitions are at Debug. The znode of a claim has the reason
// of the last move too.
//
// Errors are logged by kinds, such as broker, fetch, commit, offsets, metadata and handler: "failed" at once, "still failing"
// every 10 s with the number of errors since the last line, and "recovered" with the time it took. Errors has each error.
//
// # Concurrency
//
// All methods of Group, its sessions and claims may be called from any goroutine, except that Close must not be called from the
// handler or the Observer. Each call of the user's code has a goroutine of its own. A panic, or runtime.Goexit, ends that call
// and is reported; that of an interceptor is only logged, and the next interceptor is called. ConsumeClaim runs for several
// partitions at the same time. Setup and Cleanup run while no ConsumeClaim does. The Observer is called for several partitions at
// the same time. The calls for one partition begin in the order of its events, except that those for Revoking and for the commits
// after it may begin in either order (see Options.Observer). They may overlap. A call that does not return is reported, and in
// the end abandoned (see [Group.Consume]). Between two Consume calls of a member that stays only the Observer is called. No call
// begins after the member has left.
//
// Fetches have connections of their own, because a commit on the same connection would wait for a long poll. There are two
// connections to a broker, each with one goroutine of this package and one of sarama. Consume leaves one goroutine behind, which
// is not its own: sarama counts fetches by topic in meters of go-metrics, and all meters of a process share one goroutine for
// ever. A member that stays for the next call keeps its goroutines until it leaves. A Group that NewGroup has made runs its
// ZooKeeper session until Close has returned.
package consumer
