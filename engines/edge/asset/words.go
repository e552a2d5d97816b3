package asset

// Action names an operation of Keep.
type Action string

// The actions of Keep. A pinned URL is not evicted.
const (
	Pin    Action = "pin"
	Unpin  Action = "unpin"
	Remove Action = "rm" // also of a pinned URL; an object is removed with its last URL
)

// Bounds of Keep and Keys.
const (
	MaxKeep = 256  // URLs of one Keep, which one commit writes
	MaxKeys = 1000 // URLs of one page
)

// PackState is the state of a pack.
type PackState string

// The states of a pack. The first pack under an id serves tiles while it is verifying, because each
// read is checked by itself. Only the raw file is not served before its digest is known.
const (
	PackOpening   PackState = "opening"   // its file was found but is not open; nothing is served
	PackVerifying PackState = "verifying" // its header is sound; its structure or digest is unknown
	PackVerified  PackState = "verified"
	// PackChanged means that the file was changed in place. Nothing is served until it is verified.
	PackChanged PackState = "changed"
	PackFailed  PackState = "failed"
	PackRemoved PackState = "removed" // only in events
)

// KeepResult is the outcome of Keep.
type KeepResult struct {
	Changed []string // URLs, in order; Pin includes those that were pinned before
	Missing []string // URLs without a stored object
	Freed   int64    // bytes of the removed objects
}
