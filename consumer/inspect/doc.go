// Package inspect shows a whole group to people and to tools: it merges what ZooKeeper and Kafka have about the group, and says
// what is wrong with it, what that costs, and what to do. The command kiel prints what this package finds.
//
// # Overview
//
//	in, err := inspect.Open(ctx, inspect.Sources{Servers: zookeeper, Brokers: brokers, Config: config})
//	…
//	defer in.Close(context.WithoutCancel(ctx))
//	report, err := in.Look(ctx, "orders", inspect.Options{Window: 10 * time.Second})
//	for _, f := range report.Findings {
//		…
//	}
//
// A Report is what one Look has found. Each of its sources may be missing: the Report says of each source whether it answered,
// and what could not be seen. A [Finding] says what is wrong, with which partitions, members or topics, since when, how many
// messages wait, what to do, and with which command.
//
// With a Window, Look looks twice. A partition stands still if messages waited at the first look, its committed offset has not
// moved until the second, and messages were written meanwhile. It falls behind if its oldest waiting message is older than the
// Window in both looks, and older in the second. So no verdict needs a limit that a user has to choose. If messages wait and
// neither the committed offset nor the end has moved, only the member can say whether its handler goes on. If it does not say,
// that is a finding, too ([ProgressUnknown]).
//
// A [Series] looks again and again, for somebody who watches: it reads ZooKeeper only when something has changed, and compares
// each look with an earlier one. Package page shows it in browsers.
//
// # Guarantees
//
//   - Look writes nothing, to ZooKeeper or to Kafka, and is no member of the group. Nothing in a group is done for it before it
//     asks.
//   - Whatever ZooKeeper and Kafka answer is bounded: names and texts have the limits of package status.
//   - [Inspector.Release] deletes a znode only while nobody has claimed the partition since the znode was seen to be persistent.
//   - [Inspector.ResetOffsets] writes no offset while it sees a member or a claim.
//
// # Not guaranteed
//
// The two sources are not read at one moment, and neither are a group's partitions. A process that begins to consume during a
// reset may read the offsets from before: the result of the reset says what was seen after the write, and what can't be excluded.
//
// # Concurrency
//
// An Inspector may be used by several goroutines. It has no goroutines of its own but those of its ZooKeeper sessions and of its
// clients of Kafka, which end with Close.
package inspect
