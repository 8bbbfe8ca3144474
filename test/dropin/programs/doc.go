// Package programs has programs in the manner of those that people run on sarama's groups, and lets them live through joins,
// leaves and a crash, on sarama's own groups and on ours:
//
//   - [Traced]: a handler in a wrapper that gives it claims with a channel of the wrapper's own, as the wrappers of
//     OpenTelemetry, DataDog and Instana do;
//   - [Processor]: state for each partition, built from Claims in Setup and thrown away in Cleanup; ConsumeClaim returns an error
//     for a partition without state, as goka's processors do;
//   - [Subscriber]: messages go out on one channel, and each waits for its acknowledgement, as watermill's subscribers do;
//   - [Example]: the program that sarama shows for groups.
//
// They are written anew and know package sarama alone. [Live] is what they live through, and what must hold of each.
package programs
