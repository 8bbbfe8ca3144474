package sharedset

// What the tests of the codec call.
var (
	Decode = decode
	Encode = encode
)
