package allocfn

// Builtin is a function of this package, with what it goes by and what its mappings are like. A property that is false is not
// promised. The properties about mappings hold where all members ask for the same topics, and have the same weight.
type Builtin struct {
	Func
	// Title is the name of the Go function that returns it, as "TopicBalanced". Func.Name is the same in lower case.
	Title string

	Weights bool // it goes by Member.Weight
	Zones   bool // it goes by Member.Zone and Input.Zones
	Topics  bool // it gives a partition only to members that ask for its topic
	// Numbered functions are for members whose names end in the numbers 0 to n−1, of which the last ones join and leave.
	Numbered bool

	Even         bool // the numbers of partitions of any two members differ by at most one
	EvenInTopics bool // so do those of each topic
	CoPartitions bool // partitions of one id are at one member, over all topics with equally many partitions
	Stable       bool // a join or leave of one member moves a small part of the partitions
}

// All returns the functions of this package but [FromKiel], which makes one of the caller's, in the order in which
// docs/choosing-a-function.md lists them.
func All() []Builtin {
	return []Builtin{
		{Func: Balanced(), Title: "Balanced", Weights: true, Zones: true, Topics: true, Even: true, Stable: true},
		{
			Func: TopicBalanced(), Title: "TopicBalanced", Weights: true, Zones: true, Topics: true, Even: true, EvenInTopics: true,
			Stable: true,
		},
		{Func: CoPartitioned(), Title: "CoPartitioned", EvenInTopics: true, CoPartitions: true, Stable: true},
		{Func: Ordinal(), Title: "Ordinal", Numbered: true, Even: true, Stable: true},
		{Func: Rendezvous(), Title: "Rendezvous", Stable: true},
		{Func: Range(), Title: "Range", Topics: true, EvenInTopics: true, CoPartitions: true},
		{Func: RoundRobin(), Title: "RoundRobin", Topics: true, Even: true, EvenInTopics: true},
	}
}
