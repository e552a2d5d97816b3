package httpapi

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// Node is what the admin routes ask of the appliance.
type Node interface {
	Status() wire.Status
	Version() wire.VersionInfo
	// Drain begins the shutdown and returns at once.
	Drain(by engines.Actor, corrID, reason string)
	// Snapshot calls progress on its own goroutine, at any rate.
	Snapshot(ctx context.Context, by engines.Actor, corrID, dir string, progress func(done, total int64)) (wire.Snapshot, error)
	DBInfo(ctx context.Context) (wire.DBInfo, error)
	AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error
	Mint(ctx context.Context, by engines.Actor, corrID string, m wire.MintRequest) (wire.Token, error)
}

// RegistryReader answers the reads of /registry.
type RegistryReader interface {
	Head() *registry.HeadView
	Version(ctx context.Context, v uint64, withItems bool) (registry.VersionDoc, error)
	PayloadBytes(ctx context.Context, v uint64) ([]byte, error)
	EntryBytes(ctx context.Context, v uint64) ([]byte, error)
	Status(ctx context.Context, v uint64) (registry.VersionStatus, error)
	Diff(ctx context.Context, from, to uint64) (registry.Diff, error)
	Proposals(ctx context.Context, cursor string, limit int) (registry.ProposalList, error)
	Proposal(ctx context.Context, id string) (registry.Proposal, error)
	ProposalPayload(ctx context.Context, id string) ([]byte, error)
	Signers(ctx context.Context, epoch uint64) (registry.SignersDoc, error)
}

// RegistryWriter takes the writes of /registry; each waits for an answer of the pipeline until ctx ends.
type RegistryWriter interface {
	Propose(ctx context.Context, by engines.Actor, payload []byte, wantB3, corrID string) (registry.Proposed, error)
	Approve(ctx context.Context, by engines.Actor, id string, a record.Approval, corrID string) (registry.Approved, error)
	Commit(ctx context.Context, by engines.Actor, id, corrID string) (registry.Committed, error)
	Withdraw(ctx context.Context, by engines.Actor, id, corrID string) error
	Genesis(
		ctx context.Context, by engines.Actor, payload []byte, approvals []record.Approval, corrID string,
	) (registry.Committed, error)
}

// RegistryEvents feeds /registry/stream.
type RegistryEvents interface {
	Head() *registry.HeadView
	Subscribe(consumer string) *flow.Subscription[registry.Event]
	Since(ctx context.Context, after uint64, limit int) ([]registry.Event, error)
}

// Registry is the engine as the routes see it.
type Registry interface {
	RegistryReader
	RegistryWriter
	RegistryEvents
}

// Authority decides what a token allows.
type Authority interface {
	Check(token string, r auth.Request) (engines.Actor, error)
}

// Deps are the server's neighbours. All are needed, but Metrics, Log and Catalog may be nil.
type Deps struct {
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Board     *obs.Board
	Auth      Authority
	Node      Node
	Registry  Registry
	Lifecycle *flow.Watch[flow.Phase]
	Now       func() time.Time
	UDS       front.UDSConfig    // no socket when its path is empty
	SSE       registry.SSEConfig // bounds of /registry/stream
	Inflight  int                // registry requests at once
	DrainCap  time.Duration      // the longest drain of any service
}
