package status_test

import (
	"fmt"

	"github.com/kielgo/kiel/status"
)

// A program reads what /status has sent.
func ExampleReason_String() {
	r := status.NewReason(status.MemberGone, "host-1", "host-2", "host-3", "host-4", "host-5", "host-6", "host-7")
	fmt.Println(r)
	// Output: member-gone host-1, host-2, host-3, host-4, host-5 and 2 more
}
