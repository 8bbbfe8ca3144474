package party

import "errors"

var (
	// ErrNameTaken says that another session holds a znode of the Party's name for longer than a dead session could, or has
	// replaced the Party's znode. The error names the znode and the session, and says what to do: choose another name, or stop
	// the other process. Run has ended.
	ErrNameTaken = errors.New("name is taken")

	// ErrNameHeld says that another session holds a znode of the Party's name, perhaps that of this process before a crash. The
	// Party waits until the znode is gone, or Run ends with ErrNameTaken. The error names the znode, the session, and until when
	// the Party waits.
	ErrNameHeld = errors.New("name is held by another session")

	// ErrNotAdmitted says that Options.Admit has refused this member. Run has ended, and the member has not joined, or has left.
	ErrNotAdmitted = errors.New("not admitted")

	// ErrRecordTooLarge is the Err of a member whose record is larger than 64 KiB, and the error of New for such a record.
	ErrRecordTooLarge = errors.New("record is larger than 64 KiB")

	// ErrStopped says that Run ended before the Party could leave: its znode is deleted when the ZooKeeper session ends.
	ErrStopped = errors.New("stopped before it could leave")

	// ErrLeft is the error of a Join of a [KazooParty] or [ShallowParty] that a Leave on another goroutine has ended.
	ErrLeft = errors.New("left before it had joined")
)
