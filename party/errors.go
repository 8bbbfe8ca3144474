package party

import "errors"

var (
	// ErrNameTaken says that another session holds a znode of our name, for
	// longer than a dead session could, or put it in the place of ours. The
	// error names the znode and the session, and says what to do: choose another
	// name, or stop the other process. Run has ended.
	ErrNameTaken = errors.New("name is taken")

	// ErrNameHeld says that another session holds a znode of our name, which may
	// be that of our process before a crash. We wait until it has gone, or end
	// with ErrNameTaken. The error names the znode, the session, and until when
	// we wait.
	ErrNameHeld = errors.New("name is held by another session")

	// ErrRecordTooLarge is the Err of a member whose record has more than
	// 64 KiB, and the error of New for one of our own.
	ErrRecordTooLarge = errors.New("record is larger than 64 KiB")

	// ErrStarted says that Run was called before. A Party runs once.
	ErrStarted = errors.New("run was called before")

	// ErrStopped says that Run ended without being able to leave: the znode
	// goes with the ZooKeeper session.
	ErrStopped = errors.New("stopped before it could leave")
)
