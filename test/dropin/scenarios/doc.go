// Package scenarios runs the same consumer group handlers on a group of sarama and on a group of package consumer, and compares
// everything that a handler can observe.
//
// A [Case] is a scenario. [Observe] runs it on one [Variant]: sarama's group, or ours, with sarama's default strategies, which
// are eager, or with the cooperative-sticky strategy. The result is a list of texts for each lane; a lane is one thing that can
// be observed, such as what Consume returns, or the context of the session in Cleanup. The texts hold no times and no random
// names. [Compare] returns the lanes in which ours differs from sarama's group with the same strategies.
//
// Each such finding belongs to a row of docs/differences.md; [Rows] says to which one. A finding without a row fails the tests,
// and so does a row without a finding.
package scenarios
