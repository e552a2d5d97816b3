package name

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
)

// Errors of lookups. Calls also return flow.ErrBusy, flow.ErrClosed, flow.ErrCanceled, causes of
// contexts and errors of the store.
var (
	// ErrNotFound is returned when neither this node nor a peer knows the key or the id.
	ErrNotFound = errors.New("not found")
	// ErrTimeout is returned when the deadline of a lookup passes after it was begun. A retry may
	// succeed.
	ErrTimeout = errors.New("lookup deadline passed")
	// ErrUpstream is returned when too many peers did not answer. A retry may succeed.
	ErrUpstream = errors.New("too many peers did not answer")
	// ErrForeignCID is returned for a CID with a hash that this node does not index.
	ErrForeignCID = errors.New("CID is not of BLAKE3 with 32 bytes")
	// ErrInternal is returned when a bug ended the lookup.
	ErrInternal = errors.New("internal error in lookup")
)

// Errors of a Peer. A call wraps one of them, or returns ErrNotFound or the cause of its context.
var (
	ErrTransient   = errors.New("transient failure of peer") // refused, reset, cut off, 429, 5xx
	ErrNoRoute     = errors.New("peer is not reachable")     // no route, no address, not served
	ErrPeerTimeout = errors.New("peer did not answer in time")
	ErrInvalid     = errors.New("peer sent an invalid answer") // malformed, too large, a redirect, another 4xx
)

// SilentError is the ErrNotFound of a lookup in which most peers answered "not found" and some did
// not answer.
type SilentError struct{ Peers int } // number of peers that did not answer

func (e *SilentError) Error() string {
	return fmt.Sprintf("not found; peers that did not answer: %d", e.Peers)
}

// Is reports whether target is ErrNotFound.
func (e *SilentError) Is(target error) bool { return target == ErrNotFound }

// KeyError is returned for an invalid key.
type KeyError struct{ Reason string }

func (e *KeyError) Error() string { return "key: " + e.Reason }

// CIDError is returned for an invalid content id.
type CIDError struct{ Reason string }

func (e *CIDError) Error() string { return "cid: " + e.Reason }

// RecordError is returned for an invalid record. It names the member and the requirement.
type RecordError struct{ Field, Reason string }

func (e *RecordError) Error() string { return e.Field + " " + e.Reason }

// ConflictError is returned when a version exists with another manifest. It is final.
type ConflictError struct {
	Key Key
	Has b3.Digest // the existing manifest
}

func (e *ConflictError) Error() string { return "version was written before, with another manifest" }

// RateError is returned when the network of the caller has used up its rate of lookups that leave
// this node.
type RateError struct{ Wait time.Duration } // until the next is allowed

func (e *RateError) Error() string {
	return "index.ratelimit.miss_rps: too many lookups of this network ask peers"
}

// BreakerOpenError is returned when the breakers of all peers are open, so that no peer was asked.
type BreakerOpenError struct {
	RetryAfter time.Duration // until the first breaker lets a call through
}

func (e *BreakerOpenError) Error() string {
	return fmt.Sprintf("breakers of all peers are open, the first for another %v", e.RetryAfter.Round(time.Millisecond))
}

// ForeignNameError is returned when a name is put that belongs to another node of the fleet.
type ForeignNameError struct {
	Key  Key
	Node string // id of the item of the owner
}

func (e *ForeignNameError) Error() string {
	return fmt.Sprintf("%s belongs to %s in the registry", e.Key, e.Node)
}
