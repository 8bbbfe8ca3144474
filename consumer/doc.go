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
// The examples show these as whole programs, which handle errors and signals. A function that stores many messages at once reads
// them by [Partition.Poll], and goes back to what it could not store by [Partition.Seek].
//
// Consume and Run add the partitions of their topics to the set that the group divides (package allocator), claim those that the
// mapping gives to this member (package ownership), and call the handler, which is ConsumeClaim or the function, for each of
// them. When a call ends before its context, the member stays in the group and waits for the next call.
//
// # Before you use it
//
//   - Mark a message when its work is done, not before: what is marked is not read again.
//   - A handler returns when its messages end or its context does. It has Options.RebalanceTimeout for that. After that the
//     partition is lost to it, or in an eager session the member leaves.
//   - Sessions of Consume are eager, as sarama's are by default, or incremental: docs/sessions.md says which kind is for whom.
//     Run always works incrementally.
//   - A new group begins at the first message without a Config, and with one where Consumer.Offsets.Initial says, which is the
//     end unless changed: set Options.StartAt. docs/semantics.md has the rules, under "A start by policy".
//   - Give all members of a group the same ZooKeeper servers, chroot and Kafka cluster. Topics may differ, and may be patterns,
//     as "^orders-.*": docs/topics.md. No topic leaves the set by itself, see [Group.RemoveTopic].
//   - Kafka sees the group's offsets and no members, so its tools delete and reset the offsets of a group that runs. Stop all
//     members first: docs/semantics.md, under "The group in Kafka's eyes".
//   - Errors that end a call, and what to do about each: docs/semantics.md. The others go to the log and to [Group.Errors].
//   - docs/differences.md lists what a handler written for sarama may notice, docs/sarama-config.md what becomes of each field of
//     Config.
//
// # Guarantees
//
//   - Each message is handed out at least once, in order within a claim, if handlers mark what they have done and not more.
//   - No message is handed out by Run when the claim is not trusted, but for one whose check began before the process was
//     stopped. With Consume that holds for entering the channel of Messages, which is emptied when trust ends.
//   - A lost partition is never committed: not by a late mark, not by Commit, not by a handler that is stuck.
//   - A start position that a policy, a mark or a reset has chosen is committed before the first message is handed out. It is
//     logged, and kiel_consumer_offset_resets_total counts it.
//   - A position that Kafka does not have is reported ([ErrOffsetReset]) and counted, and never passed over in silence. So is a
//     log that an unclean election has truncated below the position, if there is a leader epoch to compare.
//   - The position of an open partition stays committed: what expires, is deleted or is lowered by a former owner's late commit
//     is restored, and what another program has stored stays until a mark is committed. With Options.Fence the group commits
//     marks, and unless StartAt is Earliest the start position that the policy has chosen, and nothing else.
//   - A partition whose offset a transaction is about to store is opened when the transaction has ended (Config.Version 2.5 or
//     newer).
//   - Aborted transactions, and other offsets that hold nothing for the handler, are passed by the committed position, with the
//     exceptions in docs/semantics.md.
//   - A topic that was deleted and created again is another topic: it is read from its first message, and no offset of the old
//     one is used. A topic that is deleted is reported once ([ErrTopicMissing]), and read again when it is created again.
//   - An offset that was copied from another Kafka cluster is where its partition starts: docs/moving-to-another-cluster.md.
//   - A refusal by Kafka's ACLs ends the call: at once at the start, later after a minute.
//   - Nothing is passed over because a record batch can't be read or is too large ([ErrUnreadable]): it ends its partition.
//   - A slow handler, a slow broker or one that throttles holds up no partition but its own while a session lasts; the end of an
//     eager session waits for all handlers. Memory is bounded by Options.BufferBytes and Options.MaxBatchBytes, as
//     docs/reading.md has it.
//   - A partition that stands still although it has messages to read is fetched anew.
//
// # Not guaranteed
//
//   - Exactly-once effects. After a crash messages are repeated that were not committed. [Claim] and [Session] have a fencing
//     token for stores that can refuse a former owner. Results that go to Kafka can be exactly-once by its transactions, with
//     Options.Fence: docs/transactions.md.
//   - That no late commit of a former owner arrives: Kafka does not fence commits, the last write wins. It costs a second reading
//     at most; docs/semantics.md has the argument, under "Late commits". A commit of another program that comes between the read
//     and the write of a repeat is overwritten.
//   - Anything beside members of Kafka's own group protocol. While some are in the group of this name, or Kafka has a share group
//     of it, nothing is opened ([ErrGroupInUse]). A member of which Kafka has stored an offset notices them at its next commit,
//     or after a minute, and opens partitions until then. With Options.Fence they are not noticed.
//   - That no message is missed after an unclean leader election if there is no leader epoch to compare (docs/reading.md).
//   - That a handler of Consume receives no message after the end of trust: after a pause of the process the channel of Messages
//     may have some. Ask Claim.Trusted or Session.Trusted before each effect on the outside, or use Run.
//   - That a graceful hand-over of a full channel repeats no message: it may be one. Run repeats none.
//
// # Status, log and metrics
//
// [Group.Status] describes the group as the member sees it, in the model of package status. [Group.Alive] and [Group.NotReady]
// are for probes; package health serves all three over HTTP. docs/operating.md has the log's lines, by which one finds why a
// partition moved, and docs/metrics.md the metrics that Options.Registerer gets.
//
// # Concurrency
//
// All methods of Group, its sessions and claims may be called from any goroutine, except that Close must not be called from the
// handler or the Observer. Each call of the user's code has a goroutine of its own. A panic, or runtime.Goexit, ends that call
// and is reported; that of an interceptor is only logged, and the next interceptor is called. ConsumeClaim runs for several
// partitions at the same time. Setup and Cleanup run while no ConsumeClaim does. The Observer is called for several partitions at
// the same time, see Options.Observer. A call that does not return is reported, and in the end abandoned (see [Group.Consume]).
// Between two Consume calls of a member that stays only the Observer is called. No call begins after the member has left.
//
// A member that stays for the next call keeps its goroutines until it leaves. A Group that NewGroup has made runs its ZooKeeper
// session until Close has returned.
package consumer
