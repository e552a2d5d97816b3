package index

import (
	"context"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
)

// Source says where an answer is from.
type Source string

// The sources.
const (
	SourceLocal Source = "local" // this node's file
	SourceCache Source = "cache" // an answer given before, within its time
	SourcePeer  Source = "peer"  // another node, just asked
	SourceStale Source = "stale" // an answer past its time: peers fail
)

// Answer says which manifest a key stands for.
type Answer struct {
	Key      Key
	Manifest b3.Digest
	Seq      uint64 // of the key at the node that wrote it
	Source   Source
	Age      time.Duration // since the file or a peer said so
	ETag     string        // a strong one, quoted: of the manifest
	Record   []byte        // the signed NameRecord, of a Local call alone
	Conflict b3.Digest     // the manifest that another trusted key has signed for the key; zero: none is known
}

// ResolveOptions change how a key is looked up.
type ResolveOptions struct {
	Fresh bool // nothing from the cache
	Local bool // asked by a peer: this node's file alone is asked, and the answer is signed
	From  Caller
}

// Caller is the sender of a lookup, as far as shares and rates need it. The zero Caller has no rate.
type Caller struct {
	Network netip.Addr // that shares a place among all networks; the zero Addr is one network too
	Cost    int        // tokens of the network's rate that the lookup takes if it leaves this node; 0: none
}

// Provider is a peer that has some content.
type Provider struct {
	Peer      PeerID
	Addrs     []string
	Region    string
	Verified  bool  // its own signature was checked
	Filed     bool  // it is in this node's file, so that a caller with a token has published it here
	AtMS      int64 // when it was signed, but no later than when it was heard of
	ExpiresMS int64
	Record    []byte // the signed ProviderRecord; nil: unsigned, from a peer that keeps none
}

// ProviderSet lists the providers of a content id, the best first.
type ProviderSet struct {
	CID       b3.Digest
	Providers []Provider
	Source    Source
	Age       time.Duration
	ETag      string // a strong one, quoted: of the whole set, whatever its order and limit
}

// ProvidersOptions change which providers are answered, and how they are looked up.
type ProvidersOptions struct {
	Region string // those of it come first; "": none does
	Limit  int    // providers answered; 0: all
	Fresh  bool   // nothing from the cache, and peers are asked even if this node knows some
	Local  bool   // asked by a peer: this node's file alone is asked
	From   Caller
}

// MaxProviders is how many providers an id keeps; the one that expires first leaves for another.
const MaxProviders = 256

// MaxHeard is how many providers of one peer's answer are taken: the first that hold, in the peer's order.
const MaxHeard = 8

// Peer is another node that is asked. Its methods return soon after ctx ends, may be called from several goroutines, and return an error that
// wraps ErrTransient, ErrNoRoute, ErrPeerTimeout or ErrInvalid, or the cause of ctx.
type Peer interface {
	Target() string // host:port, the label of its metrics
	Region() string
	// Providers asks for at most limit providers. None is an empty answer, not an error. What it returns is not trusted: Record is verified,
	// and a provider without one is unsigned whatever it says.
	Providers(ctx context.Context, cid b3.Digest, limit int) ([]Provider, error)
	// Name asks for the signed NameRecord of key. ErrNotFound: the peer says that there is none.
	Name(ctx context.Context, key Key) (record []byte, err error)
}

// PeerStatus is a peer at one moment.
type PeerStatus struct {
	Target     string
	Region     string
	Breaker    string        // "closed", "open" or "half_open"
	RetryAfter time.Duration // until an open breaker lets a call through
	Asked      uint64        // calls since the start
	Failed     uint64        // of these
	LastError  string        // how the last one that failed did; "": none has
}

// Named is a key of this node's file.
type Named struct {
	Key       Key
	Manifest  b3.Digest
	Seq       uint64 // grows by one with each write of the key, deletion included
	UpdatedMS int64
}

// Announcement is a provider that is made known: a signed record, or what this node signs for itself.
type Announcement struct {
	Record []byte // nil: the members below are signed by this node

	CID    b3.Digest
	Addrs  []string
	Region string
	TTL    time.Duration // 0: DefaultTTL
}

// MaxAnnouncements bounds the announcements of one call.
const MaxAnnouncements = 100

// Announced says what became of an Announcement.
type Announced struct {
	CID       b3.Digest
	Peer      PeerID
	ExpiresMS int64
	Err       error // a *RecordError; nil: it is in the file
}

// Event tells of a change, or of a lookup that failed. Some may be missed.
type Event struct {
	Kind string // "name_put", "name_deleted", "announced", "withdrawn", "expired", "lookup_failed"
	Key  string // "": of several
	At   time.Time
}
