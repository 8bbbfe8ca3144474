// Package kafkaconn has the connections to Kafka and the waiting for what happens on them.
//
// A [Dialer] opens the connections of one sarama client. sarama's calls know no context, so
// what ends a call is the end of its connection: the dialer can end all connections at once,
// and throws away what was written and not yet sent. [Dialer.Gate] lets a caller refuse a
// write at the moment of the write.
//
// [Run] bounds a call that knows no context, and [Calls] counts those that went on.
package kafkaconn
