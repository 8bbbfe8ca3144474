// Package consumer consumes Kafka topics in a group whose members share the
// partitions through ZooKeeper. A [Group] is a sarama.ConsumerGroup: handlers and
// wrappers written for sarama's groups work after changing the constructor. New
// programs may prefer [Group.Run], which calls a function with a [Partition].
//
// # Overview
//
//	zk, err := session.Start(ctx, zookeeper, session.Options{})
//	defer zk.Close(context.WithoutCancel(ctx))
//	group, err := consumer.New(zk, brokers, "billing", consumer.Options{})
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
// The examples show both as whole programs, which handle errors and signals.
//
// Consume and Run add the partitions of their topics to the group's set (package
// allocator), claim those that are this member's (package ownership) and call the
// handler, ConsumeClaim or the function, for each. A call that ends before its context
// leaves the member in the group, waiting for the next call. Each member looks at its
// topics again at least once a minute, or once in Config.Metadata.RefreshFrequency if
// that is less, at times of its own. In one write it adds the partitions that the set
// lacks: those that the topics have got, and those that somebody has removed. Topics are
// never created.
//
// Nothing leaves the set by itself. When no member asks for a topic any more,
// [Group.RemoveTopic] takes it out. A topic that a living member asks for can't be taken
// out to stay: the member adds it again when it looks next, if Kafka has it.
//
// A partition is opened in this order: claim → read the committed offset → commit
// the start position → read. It is closed in this order: Messages ends →
// the handler returns → what was marked is committed → the claim is released. When a
// call ends and the member stays, the claim is not released: the next call
// opens the partition again from reading the committed offset.
//
// Offsets are Kafka's, under the group's name, so the usual tools show them. They are
// committed without being a member of a Kafka group: every CommitInterval one request for
// all marked partitions, and at once when partitions are given up, with one request for
// those that are given up together. A commit's metadata is
// "kiel1;<topic id>;<token>/<partitions>;" and the text given to MarkMessage; the
// partitions are how many the topic had when the group first started on it; those of a topic
// that was created again are no more than the old one had.
//
// # Topics
//
// Members of a group may consume different topics, as in a rolling deploy that adds one.
// A partition goes to a member that consumes its topic, if the group's function looks at
// topics; package allocfn says which functions do. Partitions of topics that no member
// consumes stay in the group's set and have no owner until a member that consumes them
// joins. Each member reports such a topic once, to Errors (allocator.ErrUnwantedTopic).
//
// All members need the same topics if the group's function does not look at topics, or if
// members of Python kiel are in the group. Python members know no topics, so Go members
// ignore topics too, to compute the same mapping. A partition that is then assigned to a
// member that does not consume its topic has no owner; that member reports it
// ([ErrTopicMismatch]).
//
// # Zones
//
// A member with Options.Zone, or Config.RackID, keeps the group told in which zone
// each partition is best consumed: the rack (broker.rack) of its preferred leader,
// which does not move when brokers are restarted. It does so when it starts and when
// it looks at its topics, in one znode that all members read (package allocator), so
// that they divide alike. It writes what it has not seen before, what has changed
// and what the group does not know, and undoes nothing that others wrote: members
// that Kafka tells different things don't write against each other. Zones of
// partitions that Kafka says nothing of stay as they are; SetZones of the allocator
// removes them. What goes wrong is reported to Errors and ends nothing.
//
// Config.RackID itself has brokers name a replica in that rack to fetch from, if
// their replica.selector.class does (Kafka 2.4, Config.Version 2.3 or newer). Both go
// together: by its zone a member gets what is led in its rack, as far as shares
// allow, and what else it gets it reads from a follower there, if there is one.
// Set RackID for both; Zone alone changes nothing about fetching.
//
// # Guarantees
//
//   - Each message is handed out at least once, in order within a claim, if
//     handlers mark what they have done and not more.
//   - With Run, trust in the claim is checked by the clock in the same call that hands
//     out a message, or a batch, on the handler's own goroutine. A process that was
//     stopped, and goes on after its trust has ended, hands out at most one message: one
//     whose check began before the stop.
//   - With Consume, trust is checked right before each message enters the channel
//     that Messages returns. When the partition is revoked or trust ends, what
//     stands in the channel is taken out.
//   - Trust is checked before each commit is sent. A lost partition is never
//     committed: not by a late mark, not by Commit, not by a handler that is stuck.
//     For what a handler has in hand then, [Partition] and [Claim] let it check for
//     itself.
//   - A start position that comes from a policy (From, or a reset) is committed
//     before the first message is handed out, so that it is not decided twice.
//   - From Latest, a partition that the topic got after the group had started on it is
//     read from its first message: it is new if what is stored for the topic says so.
//   - A position that Kafka does not have is never passed over in silence: it is
//     reported ([ErrOffsetReset]), counted, and reading goes on at the first
//     message that there is; only a position beyond the end goes to the end when
//     From is Latest. With Config.Consumer.Group.ResetInvalidOffsets false the
//     partition stays closed and is tried again.
//   - A topic that was deleted and created again is another topic: its claims are
//     closed, offsets of the old one neither used nor stored, and it is read
//     from its first message, also from Latest. That takes up to a minute while it is consumed.
//   - A topic that is deleted is reported once ([ErrTopicMissing]) and shown by
//     kiel_consumer_missing_topics. Its partitions are closed within about 10 s, and
//     wait. When the topic is created again, that is logged, and its partitions are
//     opened within about 10 s. A partition in the set that its topic does not have is
//     reported once and tried again every few seconds.
//   - The position is committed when a partition is opened, marked or not. After the
//     session timeout, 1 minute and 10 minutes the owner looks at what is stored, in case
//     a late commit of a former owner lowered it, and raises it again. Every 6 hours
//     while nothing is marked it commits the position anew, because Kafka forgets an
//     offset 7 days after its last commit (1 day before Kafka 2.0). When a partition is
//     released in which nothing was marked, its position is restored if it was deleted or
//     lowered meanwhile; that takes a second at most, and its failure is logged.
//   - A partition whose offset a transaction is about to store is opened when the
//     transaction has ended (Config.Version 2.5 or newer).
//   - The commits that an owner repeats never lower an offset. They leave alone what
//     another program has stored, as one does that commits offsets in transactions, until
//     a mark is committed again; then the group does not keep that offset alive, which is
//     logged once per topic at Info. Stop the group to reset its offsets by hand.
//   - A slow handler holds up no other partition. What was fetched waits in a buffer, and
//     the partition is left out of requests until that has room. All buffers of a member
//     together hold at most Options.BufferBytes, and each at most four times
//     Config.Consumer.Fetch.Default; only a record batch that is larger than a
//     partition's share goes beyond. Messages that wait may keep half as much again
//     alive: the brokers' answers that hold them.
//   - Opening a partition does not wait for a long poll. A broker that is silent for 5 s
//     while an answer is due is asked on another connection; one that sends slowly is not
//     cut off. A broker that throttles is sent no fetch while its throttle time lasts,
//     for a minute at most each time.
//   - After a change of leader the message read last is compared with the new leader's
//     log. If an unclean election has cut it off, that is an [ErrOffsetReset], and the
//     partition continues at the first offset that was written anew. The leader epoch is
//     committed with the position (Config.Version 2.1 or newer), so the next owner
//     compares too, as does a member that was restarted.
//   - A partition that stands still for 30 s though there is something to read is fetched
//     anew, once a minute at most; kiel_consumer_fetch_resets_total counts that.
//
// # Not guaranteed
//
//   - Exactly-once effects. A crash repeats what was not committed. [Claim] has a
//     fencing token for stores that can refuse an old owner.
//
//   - Commits are not fenced by Kafka: whoever writes last wins. Trust, short
//     TCP timeouts, connections thrown away when trust ends and the repeats make a
//     late commit harmless, not impossible. A repeat reads what is stored right before
//     it writes: another program's commit in between is written over.
//
//   - Nothing is shared with members of Kafka's own group protocol. While some are
//     in the group of this name, nothing is opened ([ErrGroupInUse]).
//
//   - After an unclean leader election messages may be missed that replaced others
//     at offsets already read, if there is no leader epoch to compare: Config.Version is
//     older than 2.1, retention or compaction has removed the record batch before the
//     position, or the position was stored by another program or lies where no message was read.
//
//   - What stands in a channel of Messages is bounded by Config.ChannelBufferSize
//     alone, 256 unless changed. A process that was stopped for longer than its
//     trust lasts may hand its handler some of that before the channel is emptied.
//     Ask Claim.Trusted before each effect on the outside, or use Run.
//
// # Differences from a group of sarama
//
//	sarama                                      here
//	ConsumeClaim returns early: the session     that partition alone is closed, reported as
//	ends, all claims close                      ErrHandler, and opened again after a pause;
//	                                            Options.AfterHandlerError ends Consume instead
//	ConsumeClaim, Setup or Cleanup panics:      an error like any other
//	the process ends
//	Setup or Cleanup does not return: Close     they return ownership.ErrStuck
//	and Consume do not
//	a handler overstays Rebalance.Timeout:      that partition is lost to it (ownership.ErrStuck);
//	the member leaves the group                 the others go on
//	eager by default, Consume returns at        incremental, as cooperative-sticky; Consume
//	each rebalance                              returns at the end of ctx or Close
//	Cleanup runs before the last commit         each partition is committed and released when its
//	                                            ConsumeClaim has returned; Cleanup comes after all.
//	                                            Mark before ConsumeClaim returns
//	Cleanup waits for every ConsumeClaim        not for one that is stuck: Consume returns
//	                                            ownership.ErrStuck without Cleanup, as it does
//	                                            when StopTimeout was over before Cleanup began
//	a second Consume waits for the first        ErrBusy
//	Consume returns ctx's error before the      nil
//	join
//	Setup fails: the member stays until Kafka   it stays for the timeout of its ZooKeeper session;
//	misses it; its partitions wait              the plan is followed meanwhile
//	Offsets.Initial, default newest             Options.From, default Earliest
//	Errors drops the newest when it is full     the oldest
//	GenerationID counts Kafka's generations     the versions of this member's mapping
//	Claims in Setup are claimed                 are about to be claimed
//	interceptors see what is fetched            what enters the channel next
//	Messages keeps what it holds when it        it is emptied when the partition is revoked or lost
//	closes
//
// Of Config, these mean nothing here: Consumer.Group but for Rebalance.Timeout and
// ResetInvalidOffsets, Consumer.Offsets.Initial and Retry, Consumer.Fetch.Max
// (sarama skips what is larger), Metadata.Full and AllowAutoTopicCreation (both
// false). Net's timeouts of the connections that carry commits are 10 s at most;
// ReadTimeout means nothing for those that fetch. With Offsets.AutoCommit.Enable false marks
// are committed by Commit alone, and dropped when the partition is given up, as by
// sarama.
//
// # Concurrency
//
// All methods of Group, its sessions and claims may be called from any goroutine;
// Close not from the handler or the Observer. Each call of what the user gave has
// a goroutine of its own: a panic, or runtime.Goexit, ends that call and is
// reported; of an interceptor it is only logged, and the next one is called.
// ConsumeClaim runs for partitions at the same time, Setup and Cleanup while none
// runs. The Observer is called for partitions at the same time; the calls for one
// begin in the order of its events, and may overlap. What does not return is
// reported, and in the end left behind (see [Group.Consume]). Between two Consume calls
// of a member that stays only the Observer is called; no call begins after the member has
// left.
//
// Fetches have connections of their own: on one that carries a long poll,
// a commit would wait for the poll. There are two connections to a broker, each with
// two goroutines. Consume leaves no goroutine, but for one of sarama: the meters of go-metrics,
// which count fetches by topic in that package's own registry, share one for ever. A member
// that stays for the next call keeps its own until it leaves.
package consumer
