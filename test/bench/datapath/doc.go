// Package datapath says what the figures of the data path are: what a message costs each of several clients that read the same
// topic from a real Kafka. TestDataPath of test/bench measures them, test/cmd/plots makes the table and the picture of
// docs/data-path.md from them.
//
// Command reader, in the folder below, is the process of one client.
package datapath
