// Package sim runs whole groups through virtual days of faults and checks after every event that nothing goes wrong. It
// has only tests.
//
// # Overview
//
// A run is one group in one testing/synctest bubble: members with real sessions, the real go-zookeeper, allocators and
// ownership, on zktest's servers and virtual network, and handlers that read from a small model of Kafka. Time is
// virtual: a day takes seconds. What is done to the group, the plan, is made of a seed before the run begins: phases,
// each hours of calm and then a burst of faults, or one fault alone (a drill) with a bound of its own. After each phase
// the group must become well by itself.
//
//	go test ./test/sim                        # 20 group-days, as in make test
//	make sim DAYS=1000                        # as many as you like
//	go test ./test/sim -seed=17 -v            # that run again: same faults at the same virtual times
//	go test ./test/sim -seed=17 -keep=3.0,3.4 # only those steps of it
//	go test ./test/sim -seed=17 -tries=20     # how often does it fail?
//
// A failing run prints its seed, its plan, what happened last, and each violation. The order of goroutines within one
// virtual instant is not the seed's: a failure may need several tries.
//
// # Invariants
//
// Checked at every event, by a monitor that hears of them in one order:
//
//	S1  at most one member has a trusted claim of a partition. Excused, for 5/6 T: sessions that an operator killed, claims
//	    that he removed, and all that stood when the servers lost their data
//	S2  tokens grow with every change of owner, as long as the servers keep their data
//	S4  offsets are committed with trust and only of what was processed; the committed offset goes back only where a commit
//	    arrives late, and is put right again
//	S5  nothing is skipped: neither an opening nor a commit is beyond what was processed, and after each phase all that was
//	    produced has been processed
//	S6  what is processed again lies behind the newest acknowledged commit
//	S7  per member and partition claimed and released or lost alternate, released comes after the handler returned, versions
//	    grow, one handler at a time, nothing after left
//	S8  members that computed of the same members and partitions have the same mapping; it is complete and fair
//	S9  no panic, no goroutine left, leaving ends in time
//
// S3 (a store refuses old tokens) waits for such a store. After each phase, without any faults:
//
//	L1  all members have joined and agree, and each partition is owned, within the drill's bound
//	L2  no member ends by itself, or needs a restart, unless another has its name
//	L3  a partition whose handler is stuck goes to another member
//	L4  in calm nothing moves: no snapshot, no claim; drills that should not be noticed are not
package sim
