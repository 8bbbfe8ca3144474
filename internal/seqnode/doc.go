// Package seqnode makes and orders sequential nodes, on which the recipes that
// queue up stand: lock, election, semaphore, queue.
//
// # Overview
//
// A contender is a child of a directory that is named <guid><word><sequence>:
// 32 hex digits that are new for each attempt, a word that says what kind of
// contender it is (kazoo's exclusive lock uses "__lock__"), and the sequence
// number that the server appends. [Dir] makes contenders in one directory,
// [Node] is one of them: it waits for its turn and is removed.
//
// # State
//
//	<dir>                          persistent, empty, made when missing, never deleted
//	<dir>/<guid><word><sequence>   ephemeral, data: the identifier; gone with its session.
//	                               Persistent when [Options] say so; then it stands until it is removed
//
// Children with other names are not looked at.
//
// # Guarantees
//
//   - No contender is orphaned. When the reply to a create is lost, the contender
//     is looked for by its GUID after a Sync, in the same session. When the server refuses to
//     show it, or the caller gives up, what was made, or may yet be made, is removed in the
//     background. A removal is repeated until the node is gone or its session is over.
//   - A persistent contender is looked for and removed in later sessions, too, until Run
//     ends. When its session ends before it is known whether it was made, its GUID is looked
//     for during two session timeouts, and nothing is made through this [Dir] meanwhile.
//     A removal keeps the session open ([session.Session.Hold]).
//   - A contender keeps its place for the life of its session, also across a lost
//     connection and an end of trust; a persistent one beyond that.
//   - A waiter watches one node, the nearest one in front of it. It also looks again
//     when the connection drops, when an incarnation ends, and once per session
//     timeout without any hint. That a node's ACL does not let us read it hides its data only.
//   - A node is said to be first only if it was seen in a list in which nothing in
//     front of it stands, and the session was trusted after that.
//
// # Not guaranteed
//
//   - A persistent contender stands for ever when its process dies, or when Run ends before
//     it is removed.
//   - Sequence numbers do not wrap: after 2^31 creates in one directory the server
//     hands out the same number again and again. From 2^20 creates before that on
//     nothing is made any more ([ErrSequenceExhausted]).
//
// # Concurrency
//
// A [Dir] may be used by any number of goroutines. A [Node] belongs to one, except
// that [Node.Remove] and [Node.Abandon] may be called from any. A background removal
// is one goroutine; it ends with the ZooKeeper session at the latest, that of a persistent
// node with Run.
package seqnode
