package zones

// What the tests of the codec call.
var (
	Decode = decode
	Encode = encode
)

const MaxData = maxData
