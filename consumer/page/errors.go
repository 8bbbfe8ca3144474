package page

import "errors"

// ErrRun says that Run was called a second time.
var ErrRun = errors.New("Run was called before")
