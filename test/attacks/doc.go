// Package attacks holds, as tests, executions that break systems of this kind, and the negative controls: the rules by which such
// systems are often built and which are not enough. With all rules an execution must do no harm; without the rule against it, the
// execution must do the harm that the rule prevents, or it shows nothing. Mutants (test/mutants) break the rules, and name the
// test that must fail, and how. The column § numbers the executions.
//
//	§   execution, control                        rule or mutant                          harm without    test
//	1   a deposed leader answers Sync             session-proof-beyond-sync               overlap         TestDeposedLeaderAnswersSync, R
//	    control: Sync heartbeat                   the same                                overlap         the same
//	    control: Exists heartbeat, cut follower   session-proof-by-quorum                 overlap         TestCutFollowerAnswersReads, R
//	2   a release outlives its session            session-client-per-session-bare-delete  claim lost      TestReleaseOutlivesItsSession, S
//	    … each of the two rules alone is enough   the two below                           none            the same
//	    control: one client across sessions       session-client-per-session              claim lost      TestRequestOutlivesItsSession
//	    control: bare delete as release           ownership-release-guarded               claim lost      TestBareDeleteAsRelease
//	3   a claim whose caller gave up              ownership-claim-uncertain-unswept       unowned         TestClaimWhoseCallerGaveUp, S
//	4   a proof through a follower                two margins: session-touch-margin       overlap         TestProofThroughAFollower
//	5   a connect reply is lost                   session-connect-margin                  overlap         TestLostConnectReply, TestLostConnectReplyOnRealServers
//	6   a version is no identity                  users' stores: check and compare        overwritten     TestVersionIsNoIdentity, S
//	    the epoch of a claim changes              ownership-epoch-verified                stalled         TestClaimWhoseEpochChanged, S
//	    a claim is removed before its watch       ownership-claims-watched                stalled         TestClaimRemovedUnwatched
//	    … or without a connection                 session-datawatches-reconnect           stalled         the same
//	7   same name, new record                     party-by-czxid                          diverged        TestSameNameNewRecord
//	10  a handler that ignores revocation         ownership-overtime-one-claim            claims dropped  TestHandlerThatIgnoresRevocation
//	    … and keeps its claim                     ownership-overtime-loses                unowned         the same
//	    control: stock dialer, frozen leader      session-handshake-cap                   session lost    TestFrozenServerAtTheHandshake, R
//	    control: no claims                        ownership-no-claims                     overlap         TestNoClaims
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
