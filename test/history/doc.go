// Package history checks histories of the recipes' clients under faults, calls and results: each must have an order that the
// recipe's model can follow. It has only tests.
//
// # Overview
//
// Clients use a recipe at random; what they call, and what comes of it, is noted with the order in which calls and returns
// happened. Then porcupine looks for an order that a model of the recipe can follow, in which no operation comes before one that
// had returned before it was called. If there is none the recipe has failed.
//
//	go test ./test/history                                    # 200 runs on zktest and 10 on real servers, as in make test
//	go test ./test/history -runs=2000 -real=100               # as in make soak
//	go test ./test/history -run=Histories -first=17 -runs=1   # the run of one seed, as its failure says
//
// On zktest a run is one recipe's, in virtual time: 3 to 5 clients, 100 to 250 operations and more than 8 faults, made of the
// seed: connections cut, hung in one direction or both, or slow; replies lost; sessions expired; servers restarted, stopped, with
// their clock or without, and slow; for recipes that live with it, sessions killed, and for the others a server that goes on
// alone, cut off from the rest; writes of leases come late, when an operator has removed the contenders of the inner lock.
// Goroutines' order within an instant is not the seed's: -count=20 tries often enough. On real servers a run has all recipes, on
// one ensemble of three whose leader is killed or stopped and whose followers are cut off, and links that break, hang and lose
// replies; there the seed decides what is done, not when.
//
// A failure prints its seed, the command that runs it again, and the path of a picture of the history in out/.
//
// # The models
//
//	lock, election      one hold at a time, and tokens that grow. A hold is noted whenever it says that it is valid, and it
//	                    is asked whenever anybody acquires anything. It ends between the last time that it was valid and
//	                    the first time that it was not. On zktest the handle of every other client of a lock, of
//	                    either kind, is used by two goroutines, and two of the clients of each of these four share a
//	                    session.
//	read/write lock     the same, of one writer or some readers. Contenders of every other client are persistent: they
//	                    outlive its sessions.
//	semaphore           the same, of two
//	queue               a list, of which the first is taken; numbers of entries grow. With priorities an entry need
//	                    not know those in front of it that were put after its Get had begun. On real servers a
//	                    Get comes after a write of the same session, so that its server is not behind; if that failed, or
//	                    the session is another one afterwards, it need not know what was put after the entry that it got.
//	locking queue       for each entry: put, then held by one at a time, with tokens that grow, then consumed. Two of the
//	                    clients on zktest share a session.
//	counter             a register. Another is one to which all add 1, so that they write the same numbers.
//	lease               a record: whose, until when. It is another's only when it was released or has ended by the clock
//	                    of the client that takes it, no hold is valid later than that less the skew, and nobody is refused
//	                    by a record that nobody wrote or that has ended. Clocks differ by as much as is tolerated in every
//	                    other run.
//	multi lease         the same for each slot. ObtainAny goes by a slot only if it is another's. ObtainAll obtains all; if it
//	                    is refused one, those before it may have been its own until it returned, but no longer. What
//	                    Slots shows of each was so meanwhile (on zktest: a server that is behind shows what was).
//
// An operation whose outcome is not known ([session.ErrUncertain], or a context that ended) is open-ended: it may be done at any
// time after it was called, once, or never. So that this can be checked, values and changes are all different, and at the end all
// is fetched: what somebody has seen was done before that, and what nobody ever saw is left out, because a history with it has an
// order only if it has one without. A Get of a Queue that returned a value without knowing whether it took it off is a removal at
// any time, unless another got the value.
//
// A history that porcupine has not come to an end with in time has failed, too.
//
// # What it can't show
//
//   - That waiters are served in their order (the recipes' own tests show that), or that they are served soon: only that enough
//     is done in all runs together, and that all works again when the faults have ended.
//   - On real servers, that nothing is left behind. On zktest no contender is left, nor anything that a session owns: of locks as
//     soon as all clients have acquired them once more, of the other recipes 30 seconds later.
//   - The order in which entries of a locking queue are held: with one getter and without faults it is looked at, at the end.
//   - On real servers, that [counter.Counter.Get] is up to date, which it does not promise: what it returns was so at some time
//     before.
//   - What a process does that is stopped between looking at its hold and its next step.
//   - Sessions that are killed under a hold: what an operator does to it is not the hold's fault.
//   - Loss of the servers' data.
//
// That the checks bite is shown by the library without some of its rules (test/mutants), by recipes that are used as they must
// not be, and by histories made by hand, one for each thing that must not be: controls_test.go.
//
// # Code map
//
//	history_test.go   what is noted
//	run_test.go       the recipes, and what a run is
//	check_test.go     checking, and telling what is wrong
//	holds_test.go, mutex_test.go, queue_test.go, narrow_test.go, lockingqueue_test.go, counter_test.go, lease_test.go,
//	multilease_test.go
//	                  models, and clients
//	zktest_test.go    runs in virtual time; on real servers: real_test.go
package history
