// Package hold is what the recipes have in common that hold something: a hold whose context ends when its znode is not
// ours any more, functions that run under a hold, and znodes of our own that are removed in the background.
//
// # Overview
//
// [Own] is a znode of this process: its making is carried to the end also when the caller has given up, and its removal
// is repeated until it is proved gone. [Hold] is a hold on what such a znode stands for. [Under] and [Do] call a function
// under a hold.
//
// # Guarantees
//
//   - What a caller that gave up has made, or may have made, is removed in the background, unless its session is over.
//   - A hold ends with its incarnation, unless it is lasting, and when its znode is removed, or made anew by somebody, as seen by a
//     watch and by a look at least once per session timeout.
//   - Losing a hold deletes nothing: the znode stays until it is released or its session is over.
//   - A function that runs under a hold has returned before that is released, also when it panics or ends its goroutine.
//
// # Concurrency
//
// All methods may be called from any goroutine. A Hold has one goroutine for each of its watches; they end with it. An Own has one
// while it is made and one while it is removed; they end with its session at the latest.
package hold
