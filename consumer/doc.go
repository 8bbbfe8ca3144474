// Package consumer consumes Kafka topics in a group whose members share the
// partitions through ZooKeeper: a [Group] is a sarama.ConsumerGroup over
// package ownership.
package consumer
