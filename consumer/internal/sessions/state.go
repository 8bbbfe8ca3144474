package sessions

// Phase is where a member's consuming stands.
type Phase uint8

// The phases.
const (
	Between  Phase = iota // in the group, no call runs: claims are kept, nothing is read
	Waiting               // a call waits for the plan and for its claims
	InSetup               // Setup runs
	Running               // partitions are read
	Ending                // the session's context has ended: Setup and the ConsumeClaims are to return
	Cleaning              // Cleanup runs
	Closing               // last commits and releases; then the call returns
	Out                   // the call has returned for good: the member leaves, or has left
)

// Claim is what this member believes of its claim of a partition.
type Claim uint8

// The claims. Each but Free has a call of ownership's handler, which ends with Release.
const (
	Free    Claim = iota // not this member's
	Held                 // this member's
	Revoked              // to be released, as soon as its work is done
	Gone                 // lost: nothing of it is committed any more
)

// Use is what the session does with a partition.
type Use uint8

// The uses.
const (
	Idle    Use = iota // it is not in the session
	Listed             // in Claims of an eager session; its ConsumeClaim has not been called
	Runs               // it is being opened, or its ConsumeClaim runs
	Done               // its ConsumeClaim has returned, or will not be called; the last commit is to come
	Commits            // the last commit is under way
	Stuck              // the time of its ConsumeClaim is over, and it has not returned
)

// Cause is why a session has ended.
type Cause uint8

// The causes.
const (
	None      Cause = iota
	Rebalance       // its partitions change
	LostClaim       // a claim was lost
	Exited          // a ConsumeClaim has returned by itself, or reading has ended by itself
	Failed          // Setup has returned an error
	TimedOut        // a partition is planned for this member again whose ConsumeClaim has not returned in its time
	Asked           // the member leaves: because the call's context has ended, or for any other reason
)

// Kind is the sort of a call.
type Kind struct {
	Eager bool // Claims are what is held when Setup is called, and the session ends when they change
	Run   bool // of an incremental call: the program sees no session, but single partitions alone
	Hold  bool // the program alone commits: when the member leaves, partitions are kept until Cleanup has returned, as far as time allows
}

// Part is the state of one partition.
type Part struct {
	Mine    bool // the plan gives it to this member
	Blocked bool // it can't be claimed for a reason that was reported
	Claim   Claim
	Use     Use
}

// Head is the state of a member without its partitions.
type Head struct {
	Kind  Kind // of the running call, or of the last one
	Phase Phase
	Cause Cause // of the session that has ended last

	Planned bool // there is a plan, made under the incarnation of the ZooKeeper session that is trusted now
	Leaving bool // all is to be released
	Setting bool // the session has ended, and Setup has not returned
	Exiting bool // the program has ended the session: it ends as soon as it is not Paused any more
	Half    bool // half of the time since the end of the session is over
	Over    bool // all of that time was over, and something had not returned
	Alone   bool // ownership has ended, so nothing is claimed or released any more
	Waited  bool // the call has waited for its claims for long enough
	Paused  bool // Setup was called a moment ago
	Young   bool // Setup was called not long ago: a gain does not end the session yet
	Gained  bool // the session has been without a claim that the member holds for long enough
}

// State is the state of one member. The zero value has just joined.
type State struct {
	Head

	Parts []Part // by the number that the caller has given to the partition

	counts
}

// counts are the partitions with some property. They spare most steps to look at all partitions.
type counts struct {
	uses    [Stuck + 1]int // by their use; that of Idle ones is not kept
	holds   int            // their claims are to be released some time
	missing int            // planned and not held, nor blocked
	gains   int            // planned and held, and not in the session
	back    int            // planned, and stuck
}

// count returns the counts of all partitions.
func count(parts []Part) (c counts) {
	for _, q := range parts {
		c.add(q, 1)
	}
	return c
}

// add counts a partition n times.
func (c *counts) add(q Part, n int) {
	if q.Use != Idle {
		c.uses[q.Use] += n
	}
	if q.Claim == Held || q.Claim == Revoked {
		c.holds += n
	}
	switch {
	case !q.Mine:
	case q.Use == Stuck:
		c.back += n
	case q.Claim == Held && q.Use == Idle:
		c.gains += n
	}
	if q.Mine && !q.Blocked && q.Claim != Held {
		c.missing += n
	}
}

// Input is something that has happened. P is the partition's number.
type Input struct {
	What What
	P    int
	Mine []int // of Plan: the partitions that the plan gives to this member
	Kind Kind  // of Consume
}

// What is the kind of an Input.
type What uint8

// The inputs.
const (
	// From ownership.

	Plan       What = iota // ownership acts on a plan, made under the trusted incarnation
	Distrust               // that incarnation has ended; each claim is Lost besides
	Blocked                // P can't be claimed, as was reported
	Claimed                // P is held
	WasRevoked             // P is to be released
	Lost                   // P is not this member's any more
	Overtime               // the ConsumeClaim of P has not returned RebalanceTimeout after P was revoked or lost
	Ended                  // ownership has ended; what has not returned is stuck

	// From the program, and from Kafka.

	Consume         // a call
	Stop            // the call's context has ended, or the member is to leave for any other reason
	SetupReturned   // Setup has returned nil
	SetupFailed     // Setup has returned an error
	CleanupReturned // Cleanup has returned
	ByItself        // the ConsumeClaim of P is about to return by itself, or reading of P has ended by itself in an eager session
	Returned        // the ConsumeClaim of P has returned, or P was not opened before its session ended
	Committed       // the last commit of P was answered, or its time is over

	// Timers.

	WaitOver  // the call has waited for its claims
	PauseOver // Setup was called long enough ago for the program to end the session
	Aged      // Setup was called long enough ago for a gain to end the session
	GainOver  // since the first claim that the session does not have
	HalfOver  // half of the time since the end of the session
	AllOver   // all of it
	IdleOver  // no call has come
	BackOver  // of Run: since an overdue partition was planned for this member again
)

// Action is something that the caller has to do now.
type Action struct {
	Do     Do
	P      int
	Claims []int // of CallSetup
	Cause  Cause // of EndSession and Return
}

// Do is what to do.
type Do uint8

// The actions.
const (
	CallSetup   Do = iota // with Claims
	Open                  // P: find the position, read, call ConsumeClaim
	EndSession            // end the session's context, and then all Messages
	CallCleanup           //
	Commit                // P: the last commit
	Release               // P: let ownership's handler return
	GiveUp                // something has not returned in its time: the call returns an error that names it
	Leave                 // begin to leave the group
	Return                // let the call return
)
