package httpapi

// bodyReader pulls a body of known shape, whatever its encoding. What it refuses is a *BodyError that names the member.
//
// A body is read once, front to back, and nothing of it is kept: its members are checked as they come, so that a large body
// that is wrong costs no more than what stands before the fault.
type bodyReader interface {
	// object calls each for every member, which must then read its value, and look out for a name that was there before. name
	// is good until the next read.
	object(each func(name []byte) error) error
	// list calls each for every element, which must then read it.
	list(each func(i int) error) error
	// text gives a string, good until the next read.
	text() ([]byte, error)
	// number gives a whole number from 0.
	number() (uint64, error)
	// end refuses what comes after the body.
	end() error
	// fail says that what was read last is wrong, or the member name in it, if name is not "".
	fail(name, reason string) error
}

// Reasons that both encodings give.
const (
	wantObject = "must be an object"
	wantList   = "must be an array"
	wantText   = "must be a string"
	wantNumber = "must be a whole number below 2^64"
	wantOne    = "must be one value, with nothing behind it"
	wantKnown  = "is not a known member"
	wantOnce   = "is given more than once"
	wantThere  = "is missing"
	wantMore   = "ends too early"
)
