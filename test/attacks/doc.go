// Package attacks holds, as tests, executions that break systems of this kind, and the negative controls: the rules by which such
// systems are often built and which are not enough. With all rules an execution must do no harm; without the rule against it, the
// execution must do the harm that the rule prevents, or it shows nothing. Ownership's rules are switched off (internal/sabotage),
// and the execution runs again; the others are broken by mutants (test/mutants), which name the test that must fail. The column §
// numbers the executions.
//
//	§   execution, control                        rule, switch or mutant                  harm without    test
//	1   a deposed leader answers Sync             session-proof-beyond-sync               overlap         TestDeposedLeaderAnswersSync, R
//	    control: Sync heartbeat                   the same                                overlap         the same
//	    control: Exists heartbeat, cut follower   session-proof-by-quorum                 overlap         TestCutFollowerAnswersReads, R
//	2   a release outlives its session            the two rules below                     claim lost      TestReleaseOutlivesItsSession, S
//	    … each of the two rules alone is enough   one of them                             none            the same
//	    control: one client across sessions       session-client-per-session              claim lost      TestRequestOutlivesItsSession
//	    control: bare delete as release           GuardedRelease                          claim lost      TestBareDeleteAsRelease
//	3   a claim whose caller gave up              PossiblyMine                            unowned         TestClaimWhoseCallerGaveUp, S
//	4   a proof through a follower                two margins: session-touch-margin       overlap         TestProofThroughAFollower
//	5   a connect reply is lost                   session-connect-margin                  overlap         TestLostConnectReply, TestLostConnectReplyOnRealServers
//	6   a version is no identity                  users' stores: check and compare        overwritten     TestVersionIsNoIdentity, S
//	    the epoch of a claim changes              EpochWatch                              stalled         TestClaimWhoseEpochChanged, S
//	7   same name, new record                     party-by-czxid                          diverged        TestSameNameNewRecord
//	10  a handler that ignores revocation         StuckLosesClaim                         claims dropped  TestHandlerThatIgnoresRevocation
//	    control: stock dialer, frozen leader      session-handshake-cap                   session lost    TestFrozenServerAtTheHandshake, R
//	    control: no claims                        Claims                                  overlap         TestNoClaims
//	    control: commit after release             close order: handler, commit, release   late commit     TestCommitAfterRelease
//	    control: debounce off in a storm          QuietPeriod, MaxDelay                   storm           TestStormWithoutDebounce
//	    control: different functions              allocator-same-function                 diverged        TestDifferentFunctions
//
// R is TestOnARealEnsemble, S is TestOnARealServer; the other tests run in virtual time, on package zktest inside of
// testing/synctest bubbles.
//
// Overlaps are found by the checker of event logs (internal/eventlog), from what the members' observers and handlers write. A
// handler acts every 20 ms while its claim is trusted. The figures that the tests print are, when two members owned a partition
// one after the other, the shortest margin between the end of the first one's trust and the claim of the next, or how long they
// overlapped. Where an operator has removed a claim, an overlap is the operator's, and does not count.
//
// KIEL_TEST_LOG=1 makes the members log to the test's output.
package attacks
