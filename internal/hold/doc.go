// Package hold has what the recipes with holds have in common: a hold whose context ends when its znode is lost, functions that
// run under a hold, and znodes of this process that are removed in the background.
//
// # Overview
//
// [Own] is a znode of this process: its creation is completed even if the caller has given up, and its removal is repeated until
// the znode is proved gone. [Removal] is the part of it that removes once, in the background. [Hold] is a hold on what such a
// znode represents. [Under] and [Do] call a function under a hold. [Wrap] makes the errors of the recipes.
//
// # Guarantees
//
//   - A znode that was or may have been created for a caller that gave up is removed in the background, unless its session is
//     over.
//   - A hold ends with its incarnation, unless it is lasting. It also ends when its znode is removed or created again by
//     somebody, which a watch shows, and a check at least once per session timeout.
//   - Losing a hold deletes nothing: the znode stays until the hold is released or the session is over.
//   - A function that runs under a hold has returned before the hold is released, also when it panics or ends its goroutine.
//
// # Concurrency
//
// Any goroutine may call any method. A Hold has one goroutine for each of its watches; they end with the hold. An Own has one
// goroutine while its znode is created and one while it is removed; they end with the session at the latest, or with Run of the
// session if the znode is persistent.
package hold
