// Package kazoo has cases of kazoo's recipes that kazoo's own tests lack: through the public API, each on zktest in virtual time
// and on a real ZooKeeper. kazoo's own tests are in package suite.
//
//	go test ./test/kazoo -run 'TestStaleReady/zookeeper'
//
// A case is the same function on both; it waits for conditions, and judges by what the servers say. It lets time pass only to see
// that something does not happen. All share one real server, and each has a path of its own. Where kazoo's tests expire a
// session, so do these: somebody else who knows its password closes it.
//
// Leases last ten times as long as kazoo's, by a clock that stands still.
//
// # The cases in place of kazoo's
//
// They are in the place of those that package suite names, since they do not run, or fail, with the recipes in Go.
//
//	TestLockBesideAnotherKind                test_get_predecessor: on znodes, not on a function
//	TestLockWithExtraPatterns                test_get_predecessor_go
//	TestEnterBelowAnEphemeral                test_barrier_existing_parent_node: an error
//	TestEnterWithOwnZnode                    test_barrier_existing_node: the znode is of the same session
//	TestConnectionLossOfASet                 test_connection_loss: trust must end
//	TestJoinBesideALock                      test_race_condition_new_partitioner_during_the_lock: a foreign contender
//	TestJoinTakesALock                       test_race_condition_new_partitioner_steals_the_lock: a foreign contender
//
// # The cases that kazoo lacks
//
//	the session is lost while something is held
//	  TestSessionLostWhileHolding              Lock, WriteLock, Semaphore, Election, LockingQueue
//	  TestSessionLostWhileHoldingForGood       a persistent lock
//	  TestSessionLostWhileLeasing
//	  TestSessionLostInsideADoubleBarrier
//	  TestSessionLostOfAMember                 SetPartitioner
//	  TestSessionLostOfAPartysMember
//
//	the connection is lost, and another made, while waiting
//	  TestCutOffInLine                         Lock, WriteLock, Semaphore, Election, LockingQueue
//	  TestCutOffWhileWaiting                   the waits without a line: queues, barriers, Party, SetPartitioner
//
//	the numbers of a directory have come to an end
//	  TestSequenceExhausted                    on zktest alone: a real server takes days to come there
//
//	foreign children
//	  TestForeignChildren                      Lock, WriteLock, Semaphore, Election, LockingQueue
//	  TestForeignLeaseOfASemaphore
//	  TestForeignChildrenOfAQueue
//	  TestForeignChildrenOfALease
//	  TestForeignChildrenOfABarrier
//	  TestForeignMemberOfADoubleBarrier
//	  TestForeignChildrenOfAParty
//	  TestForeignChildrenOfASet
//	  TestForeignChildrenOfACounter
//
//	two of one identifier
//	  TestDuplicateIdentifiersInTurns          Lock, WriteLock, Semaphore, Election; LockingQueue has none
//	  TestDuplicateIdentifiersOfContenders
//	  TestDuplicateIdentifiersOfASemaphore
//	  TestDuplicateIdentifiersOfALease
//	  TestDuplicateIdentifiersOfAParty
//	  TestDuplicateIdentifiersOfADoubleBarrier
//	  TestDuplicateIdentifiersOfASet
//
//	a ready that was left behind
//	  TestStaleReady
//	  TestReadyBesideAMember
//
//	a transaction, or a write with a condition, is refused
//	  TestRefusedObtain
//	  TestRefusedRenewAndRelease
//	  TestRefusedLeaseOfASemaphore
//	  TestRefusedNumberOfASemaphore
//	  TestRefusedTake
//	  TestRefusedConsume
//	  TestRefusedPutAll
//	  TestRefusedRemoval
//	  TestRefusedAdd
//	  TestRefusedReady
//
// What takes a server that lags, replies that are lost, or another order of requests than these, is in the packages of the
// recipes.
package kazoo
