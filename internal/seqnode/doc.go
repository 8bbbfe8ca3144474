// Package seqnode creates and orders sequential znodes. The recipes whose members form a queue are built on it: lock, election,
// semaphore and lease.
//
// # Overview
//
// A contender is a child of a directory. Its name is <guid><word><sequence>: 32 hex digits that are new for each attempt, a word
// that names the kind of contender (kazoo's exclusive lock uses "__lock__"), and the sequence number that the server appends. A
// [Dir] creates the contenders of one directory. A [Node] is one of them: it waits for its turn and is removed.
//
// # State
//
//	<dir>                          persistent, empty, created when missing, never deleted
//	<dir>/<guid><word><sequence>   ephemeral, data: the identifier; deleted with its session.
//	                               Persistent with [Options].Persistent: it exists until it is removed
//
// Children with other names are ignored.
//
// # Guarantees
//
//   - No contender is orphaned. When the reply to a create is lost, the contender is looked for by its GUID, after a Sync and in
//     the same session. When the server refuses that, or the caller gives up, a contender that was or may yet be created is
//     removed in the background. A removal is repeated until the contender is gone or its session has ended.
//   - A persistent contender is looked for and removed in later sessions, too, until Run ends. When its session ends before the
//     outcome of its create is known, its GUID is looked for during two session timeouts; meanwhile this [Dir] creates nothing. A
//     removal keeps the session open ([session.Session.KeepOpen]).
//   - A contender keeps its place while its session lives, through lost connections and ends of trust; a persistent one longer.
//   - A waiter watches one znode, the nearest one that precedes it. A waiter also checks that znode when the connection is lost,
//     when an incarnation ends, and once per session timeout. An ACL that forbids reading a znode hides its data only.
//   - A node counts as first only after it was seen in a list in which no other precedes it, while the session was trusted when
//     the list had arrived.
//
// # Not guaranteed
//
//   - A persistent contender exists for ever when its process dies, or when Run ends before the contender is removed.
//   - Sequence numbers do not wrap: after 2^31 creates in one directory the server assigns the same number again and again. The
//     last 2^20 numbers are refused ([ErrSequenceExhausted]).
//
// # Concurrency
//
// Any number of goroutines may use a [Dir]. A [Node] belongs to one goroutine, but any goroutine may call [Node.Remove] and
// [Node.Abandon]. Each background removal is one goroutine. It ends with the ZooKeeper session at the latest; that of a
// persistent node ends with Run.
package seqnode
