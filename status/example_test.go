package status_test

import (
	"fmt"

	"github.com/kielgo/kiel/status"
)

// A program reads what /status has sent.
func ExampleReason_String() {
	r := status.Reason{Code: status.MemberGone, Names: []string{"host-1", "host-2"}, More: 2}
	fmt.Println(r)
	// Output: member-gone host-1, host-2 and 2 more
}
