// Package lock is kazoo's exclusive Lock: a queue of contenders under one znode,
// of which the first holds the lock. Python and Go processes can share one.
//
// # Overview
//
// [Lock.Acquire] makes a contender, waits until it is the first, and returns a
// [Held]. Its context is the hold: it ends, with a cause, when the lock can't be
// trusted to be ours any more. Work under that context, and call [Held.Release] when
// the work has returned, whatever ended it.
//
// # State
//
//	<path>                            persistent, empty, made when missing, never deleted
//	<path>/<guid>__lock__<sequence>   a contender: ephemeral, data: the identifier in UTF-8
//
// Children with other names are ignored, so the znodes of other recipes may stand
// beside the contenders. The GUID is new for each attempt; kazoo takes one for each
// of its Lock objects, and does not look at anyone else's.
//
// # Guarantees
//
//   - At most one process of both languages holds the lock with a context that has
//     not ended, as long as nobody else deletes contenders.
//   - Contenders are served in the order in which they were made. One keeps its place
//     through lost connections and ends of trust, until its session expires.
//   - A hold's context ends when trust in the session ends ([session.ErrTrustLost]), the
//     session expires ([session.ErrSessionExpired]), the contender is removed by somebody
//     ([ErrLost]), or the lock is released ([ErrReleased]).
//   - Losing the hold gives nothing away: the contender stays until Release, or until its
//     session is over, so that nobody follows while the work is still stopping.
//   - No contender is orphaned, whatever reply is lost and whenever a caller gives up: it
//     is removed in the background, for as long as its session lives.
//   - Tokens grow from holder to holder: [Held.Token] is the contender's czxid.
//
// # Not guaranteed
//
//   - A process that checks the context and is stopped before its next step can act after
//     another has the lock. A sink that must not see that compares tokens.
//   - A Python contender whose removal was lost stands until its session ends; kazoo gives
//     up on it. Nothing removes it here; [BlockedError] names it.
//   - It is not re-entrant: a second Acquire waits behind the first.
//   - kazoo's exclusive Lock does not see contenders of go-zookeeper's and Curator's locks,
//     and neither does this one unless [Options].ExtraPatterns says so.
//   - Nearly 2^31 contenders in one directory use up its sequence numbers; then Acquire
//     returns an error that says so, and the directory must be made anew.
//   - Growing tokens across a loss of ZooKeeper's data.
//
// # Concurrency
//
// All methods may be called from any goroutine. Acquire, TryAcquire, Contenders and Release
// block until ZooKeeper has answered or their context ends. A hold has one goroutine that
// watches its contender; it ends with the hold. A hold keeps the session open
// ([session.Session.Hold]) until Release is called.
package lock
