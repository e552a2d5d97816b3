package index

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
)

// What a caller can meet beside flow.ErrBusy, flow.ErrClosed, flow.ErrCanceled, the causes of a context and the store's errors.
var (
	// ErrNotFound: nobody that was asked knows the key or the id. Final for now.
	ErrNotFound = errors.New("not found")
	// ErrTimeout: the deadline of the lookup passed, in the queue or while peers were asked. The same call may succeed later.
	ErrTimeout = errors.New("lookup deadline passed")
	// ErrUpstream: every peer that was asked failed. The same call may succeed later.
	ErrUpstream = errors.New("no peer gave an answer")
	// ErrForeignCID: a CID of a hash that this node does not index. Nobody here knows it.
	ErrForeignCID = errors.New("CID is not of BLAKE3 with 32 bytes")
	// ErrInternal: a bug ended the lookup.
	ErrInternal = errors.New("lookup failed of a bug")
)

// How a Peer fails. It wraps one of them, or returns ErrNotFound, or the cause of its context.
var (
	ErrTransient   = errors.New("peer failed in passing") // refused, reset, cut off, 429, 5xx
	ErrNoRoute     = errors.New("peer is not reachable")  // no route, no address, not served
	ErrPeerTimeout = errors.New("peer did not answer in time")
	ErrInvalid     = errors.New("peer gave an answer of no worth") // malformed, too large, a redirect, another 4xx
)

// KeyError is the fault of a key that a caller gave.
type KeyError struct{ Reason string }

func (e *KeyError) Error() string { return "key: " + e.Reason }

// CIDError is the fault of a content id that a caller gave.
type CIDError struct{ Reason string }

func (e *CIDError) Error() string { return "cid: " + e.Reason }

// RecordError is the fault of a record: the member it lies in, and what that must be.
type RecordError struct{ Field, Reason string }

func (e *RecordError) Error() string { return e.Field + " " + e.Reason }

// ConflictError refuses another manifest for a version that was written before. Final.
type ConflictError struct {
	Key Key
	Has b3.Digest // what stands
}

func (e *ConflictError) Error() string { return "version was written before, with another manifest" }

// RateError is returned when the network of the caller has used up its rate of lookups that leave this node.
type RateError struct{ Wait time.Duration } // until the next is allowed

func (e *RateError) Error() string {
	return "index.ratelimit.miss_rps: too many lookups of this network leave the node"
}

// BreakerOpenError says that the breaker of every peer is open: nobody was asked.
type BreakerOpenError struct {
	RetryAfter time.Duration // until the first of them lets a call through
}

func (e *BreakerOpenError) Error() string {
	return fmt.Sprintf("breakers of all peers are open, the first for another %v", e.RetryAfter.Round(time.Millisecond))
}
