package consumer_test

import (
	"fmt"

	"github.com/kielgo/kiel/consumer"
)

// The metadata are those that an OffsetManager or an admin client returns: of an offset that a member has stored, of one that a
// group of sarama's has stored, and of one without a text.
func ExampleMetadataText() {
	for _, metadata := range []string{`kiel1;AAAAAAAAAAAAAAAAAAAAAQ;1733/12;{"sum":42}`, `{"sum":42}`, "kiel1;;1733;"} {
		fmt.Printf("%q\n", consumer.MetadataText(metadata))
	}
	// Output:
	// "{\"sum\":42}"
	// "{\"sum\":42}"
	// ""
}
