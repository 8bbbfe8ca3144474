// Package topics knows the topics that a member of a group consumes, as Kafka describes them.
//
// A [Catalog] caches Kafka's descriptions and finds topics by patterns; a [Finder] asks Kafka for all names. A [Watcher] asks
// again and again, and keeps the group's set of partitions up to date. A [ZoneWriter] writes the zones of the partitions.
package topics
