package fill

import (
	"fmt"
	"net/http"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/partial"
	"ronbox/engines/edge/tables"
)

// LongTry is the longest try of a fill that a POST began: 256 MiB at 75 kB/s.
const LongTry = time.Hour

// How long refusals are remembered.
const (
	negativeFor = 60 * time.Second // a 404 of a host
	// faultyFor is for a 5xx and the path that it answered. A page may ask for the path many
	// times in that time; the host is asked once.
	faultyFor = 5 * time.Second
)

// Filled describes an object that is stored.
type Filled struct {
	tables.Stored
	New      bool   // the object was fetched; false if it was stored before
	Same     bool   // the host confirmed the stored object
	Pinned   bool   // the URL is not evicted
	Unpinned string // why a requested pin was not made, or why the refresh removed a pin

	From string // source that sent the end of the object, or all of it; "": a host
	Sent int64  // bytes that it sent; an earlier try of another source may have left the rest
}

// call is a fill together with the callers that wait for it.
type call = flow.Call[string, struct{}, Filled]

// job is a fill on its way to a worker. It is answered exactly once. A worker begins it before the
// latest deadline of the callers that wait for its call, or not at all. A fill that a POST began
// has no such deadline.
type job struct {
	asset.Target
	path   string
	try    time.Duration // the longest duration of a try
	idle   time.Duration // ends a try after this time without a byte; 0: that of a POST, or none
	expect b3.Digest
	again  bool   // ask the host even if the object is stored
	stale  bool   // a request has found the object stale; again is set
	serial uint64 // position in the queue
	call   *call
	source Source // is asked for the digest; nil: the host is asked for the URL
	most   int64  // bytes that the object may have; 0: as many as any object
	sent   int64  // bytes that the source has sent; owned by the worker

	// Owned by the worker.
	stored string        // the URL of the stored object, as its row spells it; "": none
	had    tables.Stored // the stored object that the host may confirm; zero: none
	header http.Header   // of the last answer of the host
	same   bool          // that answer confirms had
}

// posted reports whether a POST, a search of sources or a request for a stale object began the
// fill, so that it continues without callers.
func (j *job) posted() bool { return j.try == LongTry || j.source != nil || j.stale }

// expect returns a FillError if the object does not have the digest want, unless want is zero.
func expect(s tables.Stored, want b3.Digest) error {
	if want.IsZero() || want == s.Digest {
		return nil
	}
	return &asset.FillError{Reason: asset.DigestMismatch, URL: s.URL, Cause: fmt.Errorf("it has %s", s.Digest)}
}

// spoilt reports whether p is not the object that the job expects, and several sources have sent
// it. Then one that sent the whole object may be asked again.
func (j *job) spoilt(p *partial.Partial) bool {
	digest, _ := p.Temp.Sum()
	return j.source != nil && p.From == "" && digest != j.expect
}

// lied counts bytes with a wrong hash against the source that sent all of them.
func (j *job) lied(p *partial.Partial) {
	if j.source != nil && p.From == j.Host {
		j.source.Lied()
	}
}
