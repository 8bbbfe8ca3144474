// Package kazoo has kazoo's own test cases of its recipes, one by one, for the recipes here, and the cases that it lacks: through
// the public API, each on zktest in virtual time and on a real ZooKeeper.
//
//	go test ./test/kazoo -run 'TestLock_Cancel/zookeeper'
//
// A case is the same function on both; it waits for conditions, and judges by what the servers say. It lets time pass only to see
// that something does not happen. All share one real server, and each has a path of its own. Where kazoo's tests expire a
// session, so do these: somebody else who knows its password closes it.
//
// kazoo's threads are goroutines here, its acquire(blocking=False) is TryAcquire, its timeouts and cancels are those of a
// context. Leases last ten times as long, by a clock that stands still.
//
// # kazoo's cases
//
// These are kazoo 2.11.0's, under names by one rule: class, underscore, case without the class's name. All of them apply; what is
// different is said behind the name. Two tests see to it that none is missing: TestList compares the list in testdata with
// kazoo's source, TestTable this table with the list.
//
//	KazooLockTests, test_lock.py
//	  test_lock_one                     TestLock_One
//	  test_lock                         TestLock_Lock
//	  test_lock_reconnect               TestLock_Reconnect  (the holder is told)
//	  test_lock_non_blocking            TestLock_NonBlocking
//	  test_lock_fail_first_call         TestLock_FailFirstCall
//	  test_lock_cancel                  TestLock_Cancel  (cancel is the end of Acquire's context)
//	  test_lock_no_double_calls         TestLock_NoDoubleCalls  (the second waits; kazoo's returns False)
//	  test_lock_same_thread_no_block    TestLock_SameThreadNoBlock
//	  test_lock_many_threads_no_block   TestLock_ManyThreadsNoBlock
//	  test_lock_many_threads            TestLock_ManyThreads
//	  test_lock_reacquire               TestLock_Reacquire
//	  test_lock_ephemeral               TestLock_Ephemeral
//	  test_lock_timeout                 TestLock_Timeout  (the time is that of the whole call)
//	  test_read_lock                    TestLock_ReadLock  (a second acquire is another reader; kazoo refuses it)
//	  test_write_lock                   TestLock_WriteLock
//	  test_rw_lock                      TestLock_RWLock
//
//	TestSemaphore, test_lock.py
//	  test_basic                        TestSemaphore_Basic
//	  test_lock_one                     TestSemaphore_LockOne
//	  test_non_blocking                 TestSemaphore_NonBlocking
//	  test_non_blocking_release         TestSemaphore_NonBlockingRelease  (what was not acquired can't be released)
//	  test_holders                      TestSemaphore_Holders
//	  test_semaphore_cancel             TestSemaphore_Cancel  (cancel is the end of Acquire's context)
//	  test_multiple_acquire_and_release TestSemaphore_MultipleAcquireAndRelease
//	      (the same hold; a second release is no error)
//	  test_handle_session_loss          TestSemaphore_HandleSessionLoss
//	  test_inconsistent_max_leases      TestSemaphore_InconsistentMaxLeases
//	  test_inconsistent_max_leases_other_data TestSemaphore_InconsistentMaxLeasesOtherData
//	  test_reacquire                    TestSemaphore_Reacquire
//	  test_acquire_after_cancelled      TestSemaphore_AcquireAfterCancelled  (there is no cancelled flag)
//	  test_timeout                      TestSemaphore_Timeout
//
//	TestSequence, test_lock.py
//	  test_get_predecessor              TestSequence_GetPredecessor  (on znodes, not on a function)
//	  test_get_predecessor_go           TestSequence_GetPredecessorGo  (on znodes, not on a function)
//
//	KazooPartitionerTests, test_partitioner.py
//	  test_party_of_one                 TestPartitioner_PartyOfOne
//	  test_party_of_two                 TestPartitioner_PartyOfTwo
//	  test_party_expansion              TestPartitioner_PartyExpansion
//	  test_more_members_than_set_items  TestPartitioner_MoreMembersThanSetItems
//	  test_party_session_failure        TestPartitioner_PartySessionFailure  (a real expiry, not _fail_out)
//	  test_connection_loss              TestPartitioner_ConnectionLoss
//	      (trust must end, a lost connection changes nothing)
//	  test_race_condition_new_partitioner_during_the_lock TestPartitioner_RaceConditionNewPartitionerDuringTheLock
//	      (a foreign contender, no slow mock)
//	  test_race_condition_new_partitioner_steals_the_lock TestPartitioner_RaceConditionNewPartitionerStealsTheLock
//	      (a foreign contender, no slow mock)
//
//	KazooPartyTests, test_party.py
//	  test_party                        TestParty_Party
//	  test_party_reuse_node             TestParty_ReuseNode
//	  test_party_vanishing_node         TestParty_VanishingNode  (our member comes back until it leaves)
//
//	KazooShallowPartyTests, test_party.py
//	  test_party                        TestShallowParty_Party
//
//	NonBlockingLeaseTests, test_lease.py
//	  test_renew                        TestNonBlockingLease_Renew
//	  test_busy                         TestNonBlockingLease_Busy
//	  test_overtake                     TestNonBlockingLease_Overtake
//	  test_renew_no_overtake            TestNonBlockingLease_RenewNoOvertake
//	  test_overtaker_renews             TestNonBlockingLease_OvertakerRenews
//	  test_overtake_refuse_first        TestNonBlockingLease_OvertakeRefuseFirst
//	  test_old_version                  TestNonBlockingLease_OldVersion
//
//	MultiNonBlockingLeaseTest, test_lease.py
//	  test_1_renew                      TestMultiNonBlockingLease_1Renew
//	  test_1_reject                     TestMultiNonBlockingLease_1Reject
//	  test_2_renew                      TestMultiNonBlockingLease_2Renew
//	  test_2_reject                     TestMultiNonBlockingLease_2Reject
//	  test_2_handover                   TestMultiNonBlockingLease_2Handover
//
//	KazooElectionTests, test_election.py
//	  test_election                     TestElection_Election
//	  test_bad_func                     TestElection_BadFunc  (a nil function)
//
//	KazooQueueTests, test_queue.py
//	  test_queue_validation             TestQueue_Validation  (without types: those don't compile)
//	  test_empty_queue                  TestQueue_EmptyQueue
//	  test_queue                        TestQueue_Queue
//	  test_priority                     TestQueue_Priority
//
//	KazooLockingQueueTests, test_queue.py
//	  test_queue_validation             TestLockingQueue_QueueValidation  (without types: those don't compile)
//	  test_empty_queue                  TestLockingQueue_EmptyQueue
//	  test_queue                        TestLockingQueue_Queue  (without consume and holds_lock before get)
//	  test_consume                      TestLockingQueue_Consume  (without consume before get)
//	  test_release                      TestLockingQueue_Release
//	  test_holds_lock                   TestLockingQueue_HoldsLock  (without holds_lock before get)
//	  test_priority                     TestLockingQueue_Priority
//	  test_concurrent_execution         TestLockingQueue_ConcurrentExecution
//
//	KazooBarrierTests, test_barrier.py
//	  test_barrier_not_exist            TestBarrier_NotExist
//	  test_barrier_exists               TestBarrier_Exists
//	  test_remove_nonexistent_barrier   TestBarrier_RemoveNonexistentBarrier
//
//	KazooDoubleBarrierTests, test_barrier.py
//	  test_basic_barrier                TestDoubleBarrier_BasicBarrier
//	  test_two_barrier                  TestDoubleBarrier_TwoBarrier
//	  test_three_barrier                TestDoubleBarrier_ThreeBarrier
//	  test_barrier_existing_parent_node TestDoubleBarrier_BarrierExistingParentNode  (an error; kazoo says nothing)
//	  test_barrier_existing_node        TestDoubleBarrier_BarrierExistingNode
//
//	KazooCounterTests, test_counter.py
//	  test_int_counter                  TestCounter_IntCounter
//	  test_int_curator_counter          TestCounter_IntCuratorCounter
//	  test_float_counter                TestCounter_FloatCounter
//	  test_errors                       TestCounter_Errors  (without types: those don't compile; data of another kind)
//	  test_pre_post_values              TestCounter_PrePostValues
//
// # The cases that kazoo lacks
//
// Their names have no underscore. TestTable sees to it that none of them is missing here.
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
