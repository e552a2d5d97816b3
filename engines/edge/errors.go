package edge

import (
	"errors"
	"fmt"
	"time"
)

// What a caller can meet beside *FillError, *RateError, *PathError, flow.ErrBusy (the queue of fills is full), flow.ErrClosed and
// flow.ErrCanceled (the node drains), context.DeadlineExceeded (a fill took too long; it goes on) and the store's errors.
var (
	ErrNotFound = errors.New("not found")                                  // no pack, no object, and nothing that may be fetched
	ErrOffline  = errors.New("edge.mode is offline: nothing is fetched")   // asked for by a POST
	ErrAmnesia  = errors.New("amnesia: nothing is fetched to be kept")     // the node keeps nothing on a disk
	ErrFull     = errors.New("the content store is full")                  // by edge.cas, even if all else were evicted, or by its disk
	ErrCorrupt  = errors.New("stored object was corrupt and is set aside") // it is served no more
)

// Reason is why nothing came of a fill, one word of a closed set.
type Reason string

// The reasons of a FillError.
const (
	NotAllowed          Reason = "not_allowed"          // no host of edge.allow, or an address that is not public; a redirect to one too
	UpstreamNotFound    Reason = "upstream_not_found"   // 404 or 410; remembered for 60 s
	ETagInvalid         Reason = "etag_invalid"         // no strong ETag
	DigestMismatch      Reason = "digest_mismatch"      // the bytes are not those that the caller expects
	NotCacheable        Reason = "not_cacheable"        // a coding, or a part, that was not asked for
	ObjectCap           Reason = "object_cap"           // longer than edge.fill.max_object_bytes
	Upstream4xx         Reason = "upstream_4xx"         // any other 4xx
	Upstream5xx         Reason = "upstream_5xx"         // any 5xx but 503 and 504
	UpstreamConnect     Reason = "upstream_connect"     // no connection: the name, the port or the certificate
	UpstreamTruncated   Reason = "upstream_truncated"   // the answer broke off
	UpstreamUnframed    Reason = "upstream_unframed"    // the answer does not say where it ends
	RedirectLoop        Reason = "redirect_loop"        // more than 3 redirects
	Timeout             Reason = "timeout"              // every try took too long
	UpstreamUnavailable Reason = "upstream_unavailable" // 503 or 504 at every try, or the breaker of the host is open
)

// FillError says why nothing came of a fill. Nothing was stored.
type FillError struct {
	Reason Reason
	URL    string
	Tries  int // made; 0: nothing was asked
	Cause  error
}

func (e *FillError) Error() string {
	return fmt.Sprintf("fill %s: %s: %v", e.URL, e.Reason, e.Cause)
}

// Unwrap gives the cause.
func (e *FillError) Unwrap() error { return e.Cause }

// Retryable reports whether the same fill may do better soon.
func (e *FillError) Retryable() bool {
	switch e.Reason {
	case Upstream5xx, UpstreamConnect, UpstreamTruncated, Timeout, UpstreamUnavailable:
		return true
	}
	return false
}

// RateError says that more requests that need a fill come than edge.ingress.rps_limit lets in.
type RateError struct {
	Wait time.Duration // until there is room for one
}

func (e *RateError) Error() string { return "too many requests that need a fill" }

// PathError says what is wrong with a path or a URL.
type PathError struct {
	Path   string
	Reason string
}

func (e *PathError) Error() string { return fmt.Sprintf("path %q: %s", e.Path, e.Reason) }
