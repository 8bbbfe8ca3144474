// Package kafkaconn has connections to Kafka that can be aborted, and calls on them that can be bounded.
//
// A [Dialer] opens the connections of one sarama client. sarama's calls take no context, so a call ends only with its connection.
// The dialer can abort all connections at once; bytes that were written and not yet sent are dropped. [Dialer.Gate] lets a caller
// refuse a write at the moment of the write.
//
// [Run] bounds a call that takes no context, and [Calls] counts the calls that went on.
package kafkaconn
