package edge

import (
	"context"
	"net/netip"
	"time"

	"ronbox/appliance/b3"
)

// Names looks up names and publishes which objects this node provides. The node implements it with
// the index. Its methods return soon after ctx ends and are safe for concurrent use.
type Names interface {
	// Manifest returns the manifest of a name such as docs.example or docs.example@1.2.0. from is
	// the network of the caller, for the share and the rate of lookups that leave the node; the
	// zero Addr has no rate. Manifest returns ErrNotFound for an unknown name, a *PathError for an
	// invalid one, flow.ErrBusy or a *RateError beyond a limit, and ErrNames if the lookup may
	// succeed later.
	Manifest(ctx context.Context, name string, from netip.Addr) (Named, error)
	// Providers returns the identities of the nodes that have announced an object.
	Providers(ctx context.Context, object b3.Digest) ([]string, error)
	// Announce publishes that this node provides objects, for ttl. Withdraw ends that; an object
	// that was not announced is not an error.
	Announce(ctx context.Context, objects []b3.Digest, ttl time.Duration) error
	Withdraw(ctx context.Context, objects []b3.Digest) error
}

// Named is the manifest of a name.
type Named struct {
	Manifest b3.Digest
	Age      time.Duration // since this node read it or another node answered
	Owner    string        // identity of the node that owns the name; "" if unknown
}
