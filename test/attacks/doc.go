// Package attacks holds, as tests, the executions that broke the first design, and the negative controls: the rules by which
// such systems are often built and which are not enough. Each execution runs twice. With all rules it must do no harm; with
// its rule switched off (internal/sabotage) it must do the harm that the rule is there to prevent, or the test fails: then it
// shows nothing. The numbers are those of the executions in the design's list of attacks.
//
//	§   execution, control                        rule, switch                            harm without    test
//	1   a deposed leader answers Sync             proof is a write: ProofBeyondSync       overlap         TestDeposedLeaderAnswersSync, R
//	    control: Sync heartbeat                   the same                                overlap         the same
//	    control: Exists heartbeat, cut follower   proof is a write: ProofByQuorum         overlap         TestCutFollowerAnswersReads, R
//	2   a release outlives its session            ClientPerSession and GuardedRelease     claim lost      TestReleaseOutlivesItsSession, S
//	    … each of the two rules alone is enough   one of them                             none            the same
//	    control: one client across sessions       ClientPerSession                        claim lost      TestRequestOutlivesItsSession
//	    control: bare delete as release           GuardedRelease                          claim lost      TestBareDeleteAsRelease
//	3   a claim whose caller gave up              PossiblyMine                            unowned         TestClaimWhoseCallerGaveUp, S
//	4   a proof through a follower                two margins: TouchMargin                overlap         TestProofThroughAFollower, R
//	5   a connect reply is lost                   ConnectMargin                           overlap         TestLostConnectReply, TestLostConnectReplyOnRealServers
//	6   a version is no identity                  users' stores: check and compare        overwritten     TestVersionIsNoIdentity, S
//	    the epoch of a claim changes              EpochWatch                              stalled         TestClaimWhoseEpochChanged, S
//	7   same name, new record                     ByCzxid                                 diverged        TestSameNameNewRecord
//	10  a handler that ignores revocation         StuckLosesClaim                         claims dropped  TestHandlerThatIgnoresRevocation
//	    control: stock dialer, frozen leader      HandshakeCap                            session lost    TestFrozenServerAtTheHandshake, R
//	    control: no claims                        Claims                                  overlap         TestNoClaims
//	    control: commit after release             close order: handler, commit, release   late commit     TestCommitAfterRelease
//	    control: debounce off in a storm          QuietPeriod, MaxDelay                   storm           TestStormWithoutDebounce
//	    control: different functions              SameFunction                            diverged        TestDifferentFunctions
//
// R is TestOnARealEnsemble, S is TestOnARealServer; the other tests run in virtual time, on package zktest inside of
// testing/synctest bubbles.
//
// Overlaps are judged by the checker of event logs (internal/eventlog), from what the members' observers and handlers tell. A
// handler acts every 20 ms while its claim is trusted. The figures that the tests print are, when two members owned a
// partition one after the other, the shortest margin between the end of the first one's trust and the claim of the next, or
// how long they overlapped. Where an operator has removed a claim an overlap is his doing, and forgiven.
//
// KIEL_TEST_LOG=1 makes the members log to the test's output.
package attacks
