// Package functional runs sarama's own functional tests of consumer groups on groups of package consumer.
//
// The tests are functional_consumer_group_test.go of the sarama that the test module requires. [Generate] makes a file of package
// suite from it when our test runs; nothing of sarama's text is kept here. Package suite has the constructors and the helpers
// that the tests call: they make our groups, on our servers.
//
// The test compares the names of sarama's tests with those in tests_test.go. A sarama with other tests makes it fail until
// somebody has decided what becomes of them.
//
// With -own, the same file runs on sarama's own groups, on the same servers. With -full, which make soak gives, so do ours on
// Kafka 3.9, too.
package functional
