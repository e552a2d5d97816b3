package asset

import (
	"io"

	"ronbox/appliance/b3"
)

// The sources of an Object.
const (
	FromPack = "pack"
	FromCAS  = "cas"
	FromHot  = "hot"
)

// Object holds the complete bytes of an asset. The caller must close it.
type Object struct {
	Digest b3.Digest
	Size   int64
	Type   string // media type
	// Bytes holds the content of an object of at most 1 MiB that is not a pack. It is shared and
	// must not be modified. For any other object it is nil, and File reads the content.
	Bytes []byte
	File  *io.SectionReader // private to the caller, of a file that others may read as well

	// Of the object of a URL, in Unix ns: when its host last answered for it (0: an earlier release
	// stored it), and when it becomes stale. Demand: the host demands that it is asked then.
	Checked, Fresh int64
	Demand         bool
	At             int64 // when it was requested
	Asked          int   // the status with which the host confirmed or replaced it for this request; 0: none
	Silent         bool  // the host was to be asked for this request, and did not answer in time

	From      string // FromPack, FromCAS or FromHot
	Immutable bool   // the path identifies the bytes by their hash
	Filled    bool   // it was fetched for this request
	OnClose   func() // releases the object; nil: there is nothing to release
	etag      string // "" until ETag is called
}

// ETag returns the strong entity tag of the object.
func (o *Object) ETag() string {
	if o.etag == "" {
		o.etag = `"` + o.Digest.String() + `"`
	}
	return o.etag
}

// Close releases the object.
func (o *Object) Close() {
	if o.OnClose != nil {
		o.OnClose()
	}
}

// Event describes something that happened, for the log. Its kinds are live_fill, put, reject,
// cas_evict, cas_remove, cas_unpin, quarantine, pack_state and extract. Fields without a meaning
// for a kind are zero.
type Event struct {
	Kind   string
	Of     string // the URL without its query, the digest of the object, or the id of the pack
	Result string // the outcome of a fill, the reason of a refusal, or the state of a pack or an extract
	Size   int64  // bytes
}
