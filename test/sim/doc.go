// Package sim runs whole groups through virtual days of faults and checks after every event that nothing goes wrong. It has only
// tests.
//
// # Overview
//
// A run is one group in one testing/synctest bubble: members with real sessions, the real go-zookeeper, allocators and ownership,
// on zktest's servers and virtual network, and handlers that read from a small model of Kafka. Some runs have Groups of package
// consumer instead, on kfake: some members Consume, others Run and mark each message, others Run and work on several messages at
// a time. Time is virtual: a day takes seconds. What is done to the group, the plan, is made of a seed before the run begins:
// phases, each some calm and then a burst of faults, or one fault alone (a drill) with a bound of its own. After each phase the
// group must become well by itself. A third of the groups have several topics, and members that ask for some of them and come
// back with other lists. In half of these some members ask by patterns.
//
//	go test ./test/sim                        # 20 group-days, as in make test
//	make sim DAYS=1000 FIRST=5000             # as many as you like, from another seed
//	go test ./test/sim -random=20             # and 20 of seeds that nobody knows before
//	go test ./test/sim -run=Days -seed=17     # that run again: the same faults at the same virtual times
//	go test ./test/sim -run=Days -seed=4 -topics # rolling deploys that add a topic and take it away, as in TestTopicLists
//	go test ./test/sim -run=Days -seed=17 -keep=3.0,3.4 -tries=20 # only those steps of it, 20 times
//
// A run that fails prints its plan, what happened last, and each violation; it is run 20 times more, however long that takes, to
// see how often it fails, and shrunk to few steps that still do. The last line of the report is the command that replays them.
// The order of goroutines within one virtual instant, and the jitter of back-offs, are not the seed's: a failure may need some
// tries. To find out more, put a line into monitor.Note or make the log of a process louder (counting, in coverage_test.go).
//
// Each run begins with a plan of all drills. A run of 20 days must have injected 2,000 faults, each kind among them, ended each
// drill, and reached what is listed in coverage_test.go, or it fails. Negative controls (control_test.go) show that it bites:
// without claims, with handlers that commit after they have returned, or with Groups that store the last commit after the
// release, it must fail.
//
// # Code map
//
//	plan_test.go     what is done when, from a seed; how to shorten it: shrink_test.go
//	faults_test.go   the kinds of faults; what they do is in faults_servers_test.go (links, servers, Kafka),
//	                 faults_member_test.go, faults_data_test.go and backup_test.go, to single requests in hook_test.go
//	drill_test.go    faults that come alone, and their bounds
//	world_test.go    a run: servers, members, phases; when a group is well: well_test.go; what becomes of processes that
//	                 end: supervise_test.go
//	process_test.go  a member's process; its handler: handler_test.go; its clock: clock_test.go
//	group_test.go    the same with package consumer and kfake; its handlers: grouphandler_test.go
//	monitor_test.go  the invariants, of claims in monitor_claims_test.go and of offsets in monitor_offsets_test.go; what
//	                 is different for Groups: groupmonitor_test.go; who may trust a claim that has gone: excuses_test.go
//	topics_test.go   members whose lists of topics differ and change
//	kafka_test.go    the model of Kafka
//
// # Invariants
//
// Checked at every event, by a monitor that hears of them in one order:
//
//	S1  at most one member has a trusted claim of a partition. The only exception is an owner whose session an operator
//	    killed, or whose claim an operator removed: for 1 s, and for up to 5/6 T while its process stands still or while
//	    its link or its server is in trouble. Servers that lost data, all or what is newer than a backup, turn their
//	    clients away, so the owners of what was lost are excused for 5/6 T
//	S2  tokens grow with every change of owner, as long as the servers keep their data. Excused, as in S1: a claim of
//	    which its owner is told only after an operator removed it and another member claimed
//	S4  offsets are committed with trust and only of what was processed; the committed offset goes back only where a
//	    commit arrives late, and is put right again. A Group reports a commit when it is answered; the monitor uses the
//	    time at which it was sent. After the end of a claim a Group hands out nothing. In the virtual instant of the end
//	    there is no order, unless it was a clock that ended it
//	S5  nothing is skipped: neither an opening nor a commit is beyond what was processed, and after each phase all that
//	    was produced has been processed, of the topics that a member asks for at that time
//	S6  what is processed again lies behind the newest acknowledged commit; in drills of joining and leaving in order
//	    nothing is processed again
//	S7  per member and partition claimed and released or lost alternate, released comes after the handler returned,
//	    versions grow, one handler at a time, nothing after left
//	S8  members that computed of the same members and partitions have the same mapping; it is complete and fair. Where
//	    topic lists differ each partition goes to a member that asks for its topic, members that ask for the same have as
//	    many, within one (Balanced: in all; RoundRobin and Range: of each topic), and none claims what it does not ask for
//	S9  no panic, no goroutine left; leaving ends in time, and without an error unless there was a fault in that phase
//	    (members that come and go are none)
//
// S3 (a store refuses old tokens) waits for such a store. After each phase, without any faults:
//
//	L1  all members have joined and agree, each partition is owned, but for those of topics that no member asks for, and
//	    no claim stands that its session's member does not know of: within the drill's bound, and from then on until
//	    everybody has had the time to notice everything
//	L2  no member ends by itself, or needs a restart, unless the plan starts a second member of the same name, or the session
//	    of the process before it lives on because the servers stood still or heard of it late
//	L3  a partition whose handler is stuck goes to another member within RebalanceTimeout
//	L4  in calm nothing moves: no snapshot, no claim; drills that should not be noticed are not, and those that concern
//	    some partitions leave the others where they are; who joins, leaves or crashes costs each member one rebalance,
//	    who comes back another, and a storm five
//
// # What it can't show
//
// A stopped process (SIGSTOP) is simulated: it receives and sends nothing and its handlers wait, but its timers go on, so it
// knows of the end of trust when it wakes. So the simulation shows that a Group checks trust before each message only where a
// clock jumps, or a message comes just as trust ends. For real stops see TestFrozen of test/chaos, and TestStoppedAtAnyMoment of
// package consumer. A clock that runs at another rate is the session's clock alone. Connections to kfake break, they never hang:
// sarama waits for answers with a mutex in hand, and virtual time stands still while another goroutine wants that. All of that is
// for the real processes of test/chaos.
package sim
