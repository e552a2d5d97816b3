package httpapi

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/registry"
	regrecord "ronbox/engines/registry/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
)

// Node is what the admin routes ask of the appliance. by is who asks, for the audit chain. Progress functions are called
// on the goroutine of the call, at any rate.
type Node interface {
	NodeState
	NodeTokens
	NodeFile
	NodeAudit
}

// NodeState is what the node is and does.
type NodeState interface {
	Status() wire.Status
	Version() wire.VersionInfo
	// Drain begins the shutdown and returns at once.
	Drain(by engines.Actor, corrID, reason string)
	Config(ctx context.Context) (wire.ConfigShow, error)
	Reload(ctx context.Context, by engines.Actor, corrID string) (wire.Reloaded, error)
	Tasks() wire.TaskList
	Queues() wire.QueueList
	LogLevel() wire.LogLevel
	SetLogLevel(ctx context.Context, by engines.Actor, corrID string, l wire.LogLevel) (wire.LogLevel, error)
	// Profile writes the profile called name; one that runs for a while runs for d.
	Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error
}

// NodeTokens makes and ends tokens and their root keys.
type NodeTokens interface {
	Mint(ctx context.Context, by engines.Actor, corrID string, m wire.MintRequest) (wire.Token, error)
	// Tokens lists what by may see: its tenant's, if it has one.
	Tokens(ctx context.Context, by engines.Actor, cursor string, limit int) (wire.TokenList, error)
	// Revoke returns once the revocation is in force.
	Revoke(ctx context.Context, by engines.Actor, corrID string, r wire.RevokeRequest) (wire.Revoked, error)
	VerifyToken(ctx context.Context, r wire.VerifyRequest) (wire.Verdict, error)
	Keys(ctx context.Context) (wire.KeyList, error)
	RotateKey(ctx context.Context, by engines.Actor, corrID string) (wire.KeyInfo, error)
	RetireKey(ctx context.Context, by engines.Actor, corrID, kid string) (wire.KeyInfo, error)
}

// NodeFile looks after the database file.
type NodeFile interface {
	DBInfo(ctx context.Context) (wire.DBInfo, error)
	DBStats(ctx context.Context) (wire.DBStats, error)
	AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error
	Snapshot(
		ctx context.Context, by engines.Actor, corrID string, r wire.SnapshotRequest, progress func(done, total int64),
	) (wire.Snapshot, error)
	CheckDB(ctx context.Context, by engines.Actor, corrID string, progress func(wire.CheckLine)) (wire.CheckLine, error)
}

// NodeAudit shows the audit chain.
type NodeAudit interface {
	Audit(ctx context.Context, from uint64, limit int) (wire.AuditPage, error)
	SubscribeAudit(consumer string) *flow.Subscription[wire.AuditRow]
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
	Approve(ctx context.Context, by engines.Actor, id string, a regrecord.Approval, corrID string) (registry.Approved, error)
	Commit(ctx context.Context, by engines.Actor, id, corrID string) (registry.Committed, error)
	Withdraw(ctx context.Context, by engines.Actor, id, corrID string) error
	Genesis(
		ctx context.Context, by engines.Actor, payload []byte, approvals []regrecord.Approval, corrID string,
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

// WalletWriter takes what changes the ledger. key is the Idempotency-Key; each call waits for its outcome until ctx ends, and gives
// the exact bytes to answer with.
type WalletWriter interface {
	// WriteReady says why writes cannot be taken now, nil if they can. It does not wait.
	WriteReady() error
	Post(ctx context.Context, by engines.Actor, key, corrID string, r wallet.Request) (wallet.Answer, error)
	Batch(ctx context.Context, by engines.Actor, key, corrID string, atomic bool, ops []wallet.Request) (wallet.Answer, error)
	DeclareAsset(ctx context.Context, by engines.Actor, key, corrID, asset string) (wallet.Answer, error)
}

// WalletReader answers the reads of /v1 that are about accounts.
type WalletReader interface {
	Balance(ctx context.Context, by engines.Actor, account, asset string, minSeq uint64) (wallet.Balance, error)
	Account(ctx context.Context, by engines.Actor, account string) (wallet.Account, error)
	Assets(ctx context.Context, by engines.Actor) ([]ledger.AssetView, error)
	Tx(ctx context.Context, by engines.Actor, id record.TxID) ([]byte, error)
	History(ctx context.Context, by engines.Actor, q ledger.HistoryQuery) (ledger.Page, error)
}

// LedgerReader answers those about the ledger as a whole.
type LedgerReader interface {
	Roots(ctx context.Context, by engines.Actor, since uint64, n int) ([]record.Batch, error)
	Head(ctx context.Context, by engines.Actor) (record.Head, error)
	Proof(ctx context.Context, by engines.Actor, id record.TxID, at uint64) (record.Proof, error)
	Consistency(ctx context.Context, by engines.Actor, from, to uint64) (record.Consistency, error)
}

// LedgerFeed gives the ledger's records out.
type LedgerFeed interface {
	Head(ctx context.Context, by engines.Actor) (record.Head, error)
	Export(ctx context.Context, by engines.Actor, from, to uint64, fn func(record.Line) error) error
	Events(consumer string) *flow.Subscription[ledger.Committed]
}

// Wallet is the engine as the routes see it.
type Wallet interface {
	WalletWriter
	WalletReader
	LedgerReader
	LedgerFeed
}

// Authority decides what a token allows.
type Authority interface {
	Check(token string, r auth.Request) (engines.Actor, error)
}

// Deps are the server's neighbours. All are needed, but Metrics, Log, Catalog, Tracer and Inherited may be nil, and so may the services
// that are off: those have no routes.
type Deps struct {
	Version   string // of the program
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Tracer    *obs.Tracer
	Board     *obs.Board
	Auth      Authority
	Node      Node
	Registry  Registry
	Wallet    Wallet
	Lifecycle *flow.Watch[flow.Phase]
	Now       func() time.Time
	Inherited map[string]net.Listener // from the service manager, by name
}
