// Package machine has the life of one partition in a member, as a pure function: [Part.Next] takes a state and what has happened,
// and returns the next state and what is to be done. It has no clock, no goroutine, no session and no text, and decides
// everything.
//
// A claim and a handler have states of their own, because a handler may run on when its claim is lost, and a claim may exist
// before its handler starts.
package machine

// Claim is how far a partition's claim is, as this member knows.
type Claim uint8

// The states of a claim.
const (
	Free       Claim = iota // no claim of ours exists
	Claiming                // a claim is queued or sent
	Waiting                 // another's claim exists, and is waited for
	Unsure                  // a claim of ours may exist
	Looking                 // a look after a Sync is queued or sent
	Ours                    // a claim of ours exists, and is not open
	Announcing              // the Observer is called with Claimed; then the handler may run
	Open                    // the handler may run
	Revoked                 // the handler is asked to finish, and may commit
	Closing                 // the Observer is called with Releasing, or with Lost when the handler is stuck
	Releasing               // a release is queued or sent
)

// Handler is what a partition's handler does.
type Handler uint8

// The states of a handler.
const (
	None    Handler = iota // it does not run
	Running                // at work, or finishing
	Lost                   // its claim is lost: it may not commit, and has its time to return
	Stuck                  // its time is over
	Resting                // it returned too early, and is called again after a pause
)

// Part is the state of one partition. It is a value: Next returns another one.
type Part struct {
	Claim   Claim
	Handler Handler
	Mine    bool // the newest plan gives the partition to this member, and it can be claimed
	Foreign bool // the claim is ours, and another has written its epoch
	Paused  bool // no request before the pause is over
	NoRoom  bool // the session has no room for the claim
	Tried   bool // a claim was sent under the newest plan: if nothing came of that, a newer plan or the end of trust is on its way
	Telling bool // the Observer has not returned from Claimed of a claim that is lost already
	Stale   bool // what is under way is of a ZooKeeper session that is over
	Late    bool // what is under way is of an earlier incarnation: it proves no claim
}

// View is what holds for all partitions.
type View struct {
	Trusted bool // an incarnation is trusted
	Planned bool // the newest plan was made under it
	Leaving bool // nothing new is claimed
	Drained bool // everything is to be released
}

// Input is one thing that happened.
type Input uint8

// The inputs. What an answer has found beside, such as a token, decides nothing.
const (
	PlanMine        Input = iota // a plan gives the partition to this member
	PlanOther                    // a plan does not
	Viewed                       // the view has changed
	Trust                        // an incarnation has begun in the same ZooKeeper session
	NewSession                   // an incarnation has begun in another ZooKeeper session
	Distrust                     // the incarnation has ended
	SessionEnd                   // the session has ended for good
	FoundOurs                    // the answer to what is under way: the claim is ours
	FoundForeign                 // … and its epoch is another's
	FoundTaken                   // it is another's, or one of ours that this member does not know
	FoundGone                    // there is none of ours
	Unanswered                   // no clear answer: the claim is possibly ours
	UnansweredAgain              // … and the next request is not to be sent at once
	Unsent                       // it was not sent, or stopped
	NoRoom                       // it was not sent: the session has no room
	Refused                      // it was refused
	Doubted                      // whether a claim of ours exists that is not open may be otherwise than this member knows
	Vanished                     // the open claim's znodes are not as they were made
	VanishedAgain                // … for another time in a row
	Announced                    // the Observer has returned from Claimed
	Told                         // the Observer has returned from Released or Lost
	Returned                     // the handler has returned
	Overtime                     // the handler's time is over
	Rested                       // the pause after an early return is over
	Unpaused                     // the pause between requests is over
	Room                         // there may be room again
	inputs
)

// Action is one thing to do. Its outcome, if it has one, is an Input.
type Action uint8

// The actions.
const (
	SendClaim    Action = iota
	SendLook            // read, after a Sync, whose the claim is
	SendRelease         //
	Wait                // until another's claim is gone
	StopWaiting         //
	TellClaimed         // tell the Observer …
	TellRevoking        //
	TellReleased        //
	TellLost            //
	Start               // call the handler
	Revoke              // end the handler's context: it is to finish
	End                 // end the claim's context: nothing may be committed from now on
	ExpectReturn        // give the handler its time, unless that runs already
	Pause               // no request for a while
	Rest                // no handler for a while
	Forget              // there is nothing left to know
)
