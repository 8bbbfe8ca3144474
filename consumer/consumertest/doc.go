// Package consumertest tests handlers of package consumer without servers: the function that is given to Group.Run, and the
// sarama.ConsumerGroupHandler that is given to Group.Consume.
//
//	p := consumertest.NewPartition(consumertest.Options{Topic: "orders"}, "first", "second")
//	err := p.Run(ctx, handle)
//	offset, _ := p.Committed() // 2, if handle has marked both
//
// A handler gets a real consumer.Partition, or a real session and claim: what hands out messages, keeps marks and commits them is
// the code of package consumer. The messages, the claim and the store of offsets are the test's.
//
// # Guarantees
//
//   - Run and Consume return when the handler has returned and its marks are committed. They leave no goroutine behind.
//   - Reading ends when all messages have been handed out and are marked, or Options.Patience later, unless Options.KeepOpen is
//     set. So the handler's context does not end under the last message.
//   - A partition that is run again starts at its committed offset, under a new claim with a higher token, as with the next
//     owner.
//   - All works in a bubble of testing/synctest, if the Partition is made in it.
//
// # Not guaranteed
//
//   - Nothing is divided among members and nothing is rebalanced. For that start a group on servers: package zktest has a
//     ZooKeeper in memory.
//   - Consume calls the handler as an incremental session does: each ConsumeClaim has a context of its own. With sarama's default
//     strategies a session is eager, and ends as a whole.
//   - A pause ends with the call, and Seek before the first message begins there without an error.
package consumertest
