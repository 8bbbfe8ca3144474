// Package status is the model in which a member, or a tool, describes a group: its members, its partitions with their owners,
// what its members disagree about, what goes wrong, and the last changes. All sources write the same JSON.
//
// There are two sources. A member describes the group as it sees it ([SourceMember]): consumer.Group, ownership.Owner and
// allocator.PartitionAllocator have a method Status. A member knows all about itself and its own partitions; of the other members
// it knows which partitions the mapping assigns to them. A program that can read the group's znodes describes the whole group
// without being a member ([SourceZooKeeper]): ownership.Inspect. It knows the owner of each partition, but nothing that only a
// member or Kafka knows.
//
// # Guarantees
//
// A field of one [Version] keeps its name, its unit and its meaning; if one changes, so does Version. New fields and new codes
// may come in the same Version, so readers ignore fields and pass on codes that they do not know. Lists are sorted, and never
// null in JSON.
//
// # Not guaranteed
//
// A description does not show the group at one moment: it combines what its source knew when it was asked. Its owners are for
// people and tools. A program that must not act on a partition that it does not own asks its claim.
package status
