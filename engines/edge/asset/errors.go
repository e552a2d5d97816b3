package asset

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
)

// Errors of the edge. Its calls may also return *FillError, *RateError, *PathError, *PinsError,
// *SizeError, *DigestError, *SiteError, *MissingError, flow.ErrBusy if the queue of fills is full,
// flow.ErrClosed and flow.ErrCanceled while the node drains, context.DeadlineExceeded if a fill
// took too long (it continues), and the errors of the store.
var (
	// ErrNotFound is returned if there is no such pack or object and it may not be fetched.
	ErrNotFound = errors.New("not found")
	ErrOffline  = errors.New("edge.mode is offline: nothing is fetched") // for a POST
	ErrAmnesia  = errors.New("amnesia: nothing is fetched or stored")    // the node writes nothing to a disk
	ErrStore    = errors.New("the content store cannot be opened")       // retried every few seconds
	// ErrFull is returned if edge.cas or the disk has no room even after all evictions.
	ErrFull = errors.New("the content store is full")
	// ErrDisk is returned if the disk does not read or write the content store, as with EIO.
	ErrDisk    = errors.New("the disk of the content store fails")
	ErrCorrupt = errors.New("stored object was corrupt and is set aside")
	// ErrStale is returned if the object of a URL is stale, its host demands to be asked and did
	// not answer, and edge.cache.strict is set.
	ErrStale = errors.New("the object is stale, and its host did not confirm it")
	// ErrNames is returned if the index cannot look up the name of a site now.
	ErrNames = errors.New("the name of the site cannot be looked up now")
)

// Reason names the cause of a failed fill. The set of reasons is closed.
type Reason string

// The reasons of a FillError.
const (
	// The host is not in edge.allow, or its address is not public. Also for redirects.
	NotAllowed       Reason = "not_allowed"
	UpstreamNotFound Reason = "upstream_not_found" // 404 or 410; remembered for 60 s
	ETagInvalid      Reason = "etag_invalid"       // no strong ETag
	DigestMismatch   Reason = "digest_mismatch"    // the bytes differ from FillRequest.Expect
	// The answer is private, no-store, has a cookie or Vary: *, or has a coding or is a part that
	// was not requested.
	NotCacheable        Reason = "not_cacheable"
	ObjectCap           Reason = "object_cap"           // longer than edge.fill.max_object_bytes
	Upstream4xx         Reason = "upstream_4xx"         // any other 4xx
	Upstream5xx         Reason = "upstream_5xx"         // any 5xx except 503 and 504
	UpstreamConnect     Reason = "upstream_connect"     // no connection: the name, the port or the certificate
	UpstreamTruncated   Reason = "upstream_truncated"   // the answer ended early
	UpstreamUnframed    Reason = "upstream_unframed"    // the answer does not tell its length
	RedirectLoop        Reason = "redirect_loop"        // more than 3 redirects
	Timeout             Reason = "timeout"              // every try took too long
	UpstreamUnavailable Reason = "upstream_unavailable" // 503 or 504 at every try, or the breaker of the host is open
)

// Reasons returns the reasons of a FillError.
func Reasons() []Reason {
	return []Reason{
		NotAllowed, UpstreamNotFound, ETagInvalid, DigestMismatch, NotCacheable, ObjectCap, Upstream4xx,
		Upstream5xx, UpstreamConnect, UpstreamTruncated, UpstreamUnframed, RedirectLoop, Timeout,
		UpstreamUnavailable,
	}
}

// FillError is returned when a fill fails. Nothing was stored.
type FillError struct {
	Reason Reason
	URL    string
	Tries  int // made; 0 if the host was not asked
	Cause  error
}

// Error returns a text without the query of any URL, because the text is logged.
func (e *FillError) Error() string {
	return fmt.Sprintf("fill %s: %s: %s", Shown(e.URL), e.Reason, Redact(fmt.Sprint(e.Cause)))
}

// Unwrap returns the cause.
func (e *FillError) Unwrap() error { return e.Cause }

// Retryable reports whether the same fill may succeed soon.
func (e *FillError) Retryable() bool {
	switch e.Reason {
	case Upstream5xx, UpstreamConnect, UpstreamTruncated, Timeout, UpstreamUnavailable:
		return true
	}
	return false
}

// RateError is returned when the requests that need a fill exceed edge.ingress.rps_limit.
type RateError struct {
	Wait time.Duration // until one more request is admitted
}

func (e *RateError) Error() string { return "too many requests that need a fill" }

// PathError describes an invalid path or URL.
type PathError struct {
	Path   string
	Reason string
}

func (e *PathError) Error() string { return fmt.Sprintf("path %q: %s", e.Path, e.Reason) }

// PinsError is returned if a pin would exceed the caps of edge.cas. Nothing was changed.
type PinsError struct {
	Bytes, URLs         int64 // pinned, with the requested pins
	MaxBytes, MaxPinned int64 // bytes and URLs that may be pinned
}

func (e *PinsError) Error() string {
	if e.Bytes > e.MaxBytes {
		return fmt.Sprintf("pinned objects would have %d bytes, edge.cas.max_pinned allows %d", e.Bytes, e.MaxBytes)
	}
	return fmt.Sprintf("%d URLs would be pinned, edge.cas.max_urls allows %d", e.URLs, e.MaxPinned)
}

// DigestError is returned for a put of bytes that do not have the expected digest. Nothing was
// stored.
type DigestError struct{ Want, Got b3.Digest }

func (e *DigestError) Error() string { return fmt.Sprintf("the bytes have %s, not %s", e.Got, e.Want) }

// SizeError is returned for a put of an object that is too long. Nothing was stored.
type SizeError struct{ Max int64 }

func (e *SizeError) Error() string {
	return fmt.Sprintf("the object has more than edge.fill.max_object_bytes = %d bytes", e.Max)
}

// ErrType is returned for a put with a media type that is not in the list of package site.
var ErrType = errors.New("the media type is not in the list of those that are served")

// SiteError is returned for a name whose manifest or file is not sound.
type SiteError struct {
	Manifest b3.Digest
	Cause    error
}

func (e *SiteError) Error() string { return fmt.Sprintf("manifest %s: %v", e.Manifest, e.Cause) }

// Unwrap returns the cause.
func (e *SiteError) Unwrap() error { return e.Cause }

// MissingError is returned for an object of a site that is not stored and could not be fetched in
// time.
type MissingError struct {
	Object b3.Digest
	Cause  error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not stored here: %v", e.Object, e.Cause)
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Cause }

// Ignore returns nil if err is the error none, and err otherwise.
func Ignore(err, none error) error {
	if errors.Is(err, none) {
		return nil
	}
	return err
}
