// Package sessions decides when a member of a consumer group calls Setup, ConsumeClaim and Cleanup, when a session ends, and when
// a partition is committed and released.
//
// [State] is a value, and [State.Step] a pure function of the state and one input: no clock, no goroutine, no I/O. The caller
// gives the inputs one after the other, does what the actions say, and runs the timers for which [State.Waits] says so.
//
// A session is eager or incremental. Claims of an eager session are the partitions that the member holds when Setup is called;
// the session ends when they change. An incremental session takes and gives single partitions while it goes on. The two differ in
// differ.go alone.
//
// The steps between phases, as the tests find them; no others occur:
//
//	Between  Waiting  Consume
//	Between  InSetup  Consume
//	Between  Out      WasRevoked, IdleOver
//	Waiting  InSetup  Plan, Blocked, Claimed, WaitOver
//	Waiting  Out      WasRevoked, Stop
//	InSetup  Running  SetupReturned
//	InSetup  Ending   Plan, Blocked, Claimed, WasRevoked, Lost, Stop, Aged, GainOver
//	InSetup  Cleaning SetupFailed
//	Running  Ending   Plan, Claimed, WasRevoked, Lost, Overtime, Stop, ByItself, PauseOver, Aged, BackOver
//	Running  Cleaning Plan, Blocked, Claimed, Lost, Stop, PauseOver, Aged, GainOver
//	Ending   Cleaning Lost, SetupReturned, SetupFailed, Returned, Committed
//	Ending   Closing  AllOver
//	Ending   Out      AllOver
//	Cleaning Between  CleanupReturned
//	Cleaning Closing  CleanupReturned, AllOver
//	Cleaning Out      CleanupReturned, AllOver
//	Closing  Between  Lost, Committed
//	Closing  Out      WasRevoked, Lost, Committed
package sessions
