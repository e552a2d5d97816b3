package name

import (
	"context"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
)

// Source is the origin of an answer.
type Source string

// The sources.
const (
	SourceLocal Source = "local" // this node's file
	SourceCache Source = "cache" // an earlier answer within its TTL
	SourcePeer  Source = "peer"  // another node
	SourceStale Source = "stale" // an answer past its TTL, served while peers fail
)

// Answer is the manifest of a key.
type Answer struct {
	Key      Key
	Manifest b3.Digest
	Seq      uint64 // seq of the key at the node that wrote it
	Source   Source
	Age      time.Duration // time since the file was read or a peer answered
	ETag     string        // strong ETag of the manifest, quoted
	Record   []byte        // signed NameRecord; set for Local calls only
	Conflict b3.Digest     // manifest that another trusted key has signed for the key; zero: no conflict
}

// ResolveOptions modify the lookup of a key.
type ResolveOptions struct {
	Fresh bool // skip the cache
	Local bool // asked by a peer: use only this node's file, and sign the answer
	From  Caller
}

// Caller is the sender of a lookup, for shares and rates. The zero Caller has no rate.
type Caller struct {
	Network netip.Addr // network for shares of the queue; the zero Addr counts as a network
	Cost    int        // rate tokens that the lookup takes if it leaves this node; 0: none
}

// Provider is a peer that has the content of an id.
type Provider struct {
	Peer      PeerID
	Addrs     []string
	Region    string
	Verified  bool  // its signature was verified
	Filed     bool  // it is in this node's file: a caller with a token published it here
	AtMS      int64 // time of signing, at most the time of receipt
	ExpiresMS int64
	Record    []byte // signed ProviderRecord; nil: unsigned, from a peer without records
}

// ProviderSet lists the providers of a content id, the best first.
type ProviderSet struct {
	CID       b3.Digest
	Providers []Provider
	Source    Source
	Age       time.Duration
	ETag      string // strong ETag of the whole set, quoted; independent of order and limit
}

// ProvidersOptions modify the lookup of providers.
type ProvidersOptions struct {
	Region string // providers near it come first; "": no preference
	Limit  int    // providers returned at most; 0: all
	Fresh  bool   // skip the cache, and ask peers even if this node knows providers
	Local  bool   // asked by a peer: use only this node's file
	From   Caller
}

// MaxProviders bounds the providers of an id. A new provider replaces the one that expires first.
const MaxProviders = 256

// MaxHeard bounds the providers that are taken from one peer's answer: the first valid ones, in the
// order of the peer.
const MaxHeard = 8

// Peer is another node. Its methods return soon after ctx ends and are safe for concurrent use.
// They return an error that wraps ErrTransient, ErrNoRoute, ErrPeerTimeout or ErrInvalid, or the
// cause of ctx.
type Peer interface {
	Target() string // host:port, used as label in metrics
	Region() string
	// Providers asks for at most limit providers. No provider is an empty answer, not an error. The
	// result is not trusted: Record is verified, and a provider without a Record counts as
	// unsigned.
	Providers(ctx context.Context, cid b3.Digest, limit int) ([]Provider, error)
	// Name asks for the signed NameRecord of key. It returns ErrNotFound if the peer has none.
	Name(ctx context.Context, key Key) (record []byte, err error)
}

// PeerStatus is the state of a peer.
type PeerStatus struct {
	Target     string
	Node       string // id of its item in the registry; "": a peer of the configuration alone
	Region     string
	Breaker    string        // "closed", "open" or "half_open"
	RetryAfter time.Duration // until an open breaker lets a call through
	Asked      uint64        // calls since the start
	Failed     uint64        // failed calls
	LastError  string        // error of the last failed call; "": none
}

// Named is a key of this node's file.
type Named struct {
	Key       Key
	Manifest  b3.Digest
	Seq       uint64 // grows by one with each write of the key, including deletion
	UpdatedMS int64
}

// NamePage is a page of the keys of this node's file.
type NamePage struct {
	Names   []Named
	Damaged []string // raw keys of damaged rows of the page
	Next    string   // the next page begins after this key; "": last page
}

// Announcement is a provider to publish: a signed record, or members that this node signs for
// itself.
type Announcement struct {
	Record []byte // nil: this node signs the members below

	CID    b3.Digest
	Addrs  []string
	Region string
	TTL    time.Duration // 0: DefaultTTL
}

// MaxAnnouncements bounds the announcements of one call.
const MaxAnnouncements = 100

// Announced is the outcome of an Announcement.
type Announced struct {
	CID       b3.Digest
	Peer      PeerID
	ExpiresMS int64
	Err       error // a *RecordError; nil: the record is in the file
}

// Kinds of events.
const (
	EventPut       = "name_put"
	EventDeleted   = "name_deleted"
	EventAnnounced = "announced"
	EventWithdrawn = "withdrawn"
	EventExpired   = "expired"
	EventFailed    = "lookup_failed"
)

// Event reports a change or a failed lookup. Slow subscribers miss events.
type Event struct {
	Kind string // one of the kinds of events
	Key  string // "": several keys
	At   time.Time
}
