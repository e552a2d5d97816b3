package registry

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
)

// Client calls the routes of the registry, and those of the node that every service has.
type Client struct{ *client.Client }

// NewClient returns the calls of the registry over c.
func NewClient(c *client.Client) Client { return Client{c} }

// MaxItems is the most bytes of a set of items: 65,536 descriptors of 4 KiB on average.
const MaxItems = 256 << 20

// Head reads HEAD. Version 0 means that the log has no genesis.
func (c Client) Head(ctx context.Context) (Head, error) {
	return client.Ask[Head](ctx, c.Client, client.Call{Path: "/registry/head"})
}

// Version reads version v, with its items if items is true.
func (c Client) Version(ctx context.Context, v uint64, items bool) (Version, error) {
	k := client.Call{Path: "/registry/" + decimal(v), Limit: MaxItems}
	if !items {
		k.Query = client.Query{"items": {"0"}}
	}
	return client.Ask[Version](ctx, c.Client, k)
}

// Versions reads a page of the versions below before, 0 for all, newest first. Limit 0 is the page
// size of the node.
func (c Client) Versions(ctx context.Context, before uint64, limit int) (VersionList, error) {
	q := client.Query{}.Number("before", before).Number("limit", uint64(max(limit, 0)))
	return client.Ask[VersionList](ctx, c.Client, client.Call{Path: "/registry/versions", Query: q})
}

// VersionStatus reads the properties of version v that may change.
func (c Client) VersionStatus(ctx context.Context, v uint64) (VersionStatus, error) {
	return client.Ask[VersionStatus](ctx, c.Client, client.Call{Path: "/registry/" + decimal(v) + "/status"})
}

// Payload reads the exact payload of version v. Its signers signed the hash of these bytes.
func (c Client) Payload(ctx context.Context, v uint64) ([]byte, error) {
	return c.Bytes(ctx, "/registry/"+decimal(v)+"/payload")
}

// Entry reads the exact bytes of the log entry of version v.
func (c Client) Entry(ctx context.Context, v uint64) ([]byte, error) {
	return c.Bytes(ctx, "/registry/"+decimal(v)+"/entry")
}

// Items reads the descriptors of version v.
func (c Client) Items(ctx context.Context, v uint64) ([]jsontext.Value, error) {
	doc, err := c.Version(ctx, v, true)
	return doc.Items, err
}

// Horizon reads where the log begins.
func (c Client) Horizon(ctx context.Context) (Horizon, error) {
	return client.Ask[Horizon](ctx, c.Client, client.Call{Path: "/registry/horizon"})
}

// Diff reads the delta from version from to version to.
func (c Client) Diff(ctx context.Context, from, to uint64) (Diff, error) {
	q := client.Query{"from": {decimal(from)}, "to": {decimal(to)}}
	return client.Ask[Diff](ctx, c.Client, client.Call{Path: "/registry/diff", Query: q, Limit: MaxItems})
}

// Services reads the service items of the newest version as targets for Prometheus. what selects
// services of one kind; "" selects all.
func (c Client) Services(ctx context.Context, what string) ([]TargetGroup, error) {
	k := client.Call{Path: "/registry/sd", Limit: MaxItems}
	if what != "" {
		k.Query = client.Query{"what": {what}}
	}
	return client.Ask[[]TargetGroup](ctx, c.Client, k)
}

// Proposals reads one page of the live proposals, oldest first. cursor is the Next of the page
// before. Limit 0 is the page size of the node.
func (c Client) Proposals(ctx context.Context, cursor string, limit int) (ProposalList, error) {
	return client.Ask[ProposalList](ctx, c.Client,
		client.Call{Path: "/registry/proposals", Query: client.Query{}.Page(cursor, limit)})
}

// Proposal reads the state of one proposal.
func (c Client) Proposal(ctx context.Context, id string) (Proposal, error) {
	return client.Ask[Proposal](ctx, c.Client, client.Call{Path: "/registry/proposals/" + url.PathEscape(id)})
}

// ProposalPayload reads the payload of a proposal. The signers sign the hash of these bytes.
func (c Client) ProposalPayload(ctx context.Context, id string) ([]byte, error) {
	return c.Bytes(ctx, "/registry/proposals/"+url.PathEscape(id)+"/payload")
}

// Signers reads the signer set of an epoch, or the one in force if epoch is 0.
func (c Client) Signers(ctx context.Context, epoch uint64) (Signers, error) {
	path := "/registry/signers"
	if epoch > 0 {
		path += "/" + decimal(epoch)
	}
	return client.Ask[Signers](ctx, c.Client, client.Call{Path: path})
}

// AuditChain reads up to limit records of the audit chain from a sequence number on. Limit 0 is the
// page size of the node.
func (c Client) AuditChain(ctx context.Context, from uint64, limit int) (AuditChain, error) {
	q := client.Query{}.Number("from", from).Number("limit", uint64(max(limit, 0)))
	return client.Ask[AuditChain](ctx, c.Client, client.Call{Path: "/registry/audit", Query: q})
}

// Checkpoint reads the latest checkpoint as a signed note.
func (c Client) Checkpoint(ctx context.Context) ([]byte, error) {
	return c.Bytes(ctx, "/registry/checkpoint")
}

// Checkpoints reads archived checkpoints below size before, 0 for all, the newest first.
func (c Client) Checkpoints(ctx context.Context, before uint64) (CheckpointList, error) {
	return client.Ask[CheckpointList](ctx, c.Client,
		client.Call{Path: "/registry/checkpoints", Query: client.Query{}.Number("before", before)})
}

// Inclusion reads the proof of a version in the log of size versions, 0 for the size of the latest
// checkpoint.
func (c Client) Inclusion(ctx context.Context, v, size uint64) (InclusionProof, error) {
	q := client.Query{}.Number("version", v).Number("size", size)
	return client.Ask[InclusionProof](ctx, c.Client, client.Call{Path: "/registry/proof/inclusion", Query: q})
}

// ConsistencyProof reads the proof that the log of from versions is a prefix of that of to.
func (c Client) ConsistencyProof(ctx context.Context, from, to uint64) (ConsistencyProof, error) {
	q := client.Query{"from": {decimal(from)}, "to": {decimal(to)}}
	return client.Ask[ConsistencyProof](ctx, c.Client, client.Call{Path: "/registry/proof/consistency", Query: q})
}

// Item reads a descriptor of version v, or its absence, with a proof.
func (c Client) Item(ctx context.Context, v uint64, id string) (ItemProof, error) {
	return client.Ask[ItemProof](ctx, c.Client,
		client.Call{Path: "/registry/" + decimal(v) + "/item", Query: client.Query{"id": {id}}})
}

// ProofFormat is the format of a Proof.
const ProofFormat = "ronbox-registry-proof-v1"

// Proof is a proof that a version is in the log, with all data to check it except the trusted key.
// The proof of a descriptor also has the payload and the item.
type Proof struct {
	Format     string         `json:"format"`
	Checkpoint string         `json:"checkpoint"`
	Version    uint64         `json:"version"`
	Entry      string         `json:"entry"` // exact bytes
	Inclusion  InclusionProof `json:"inclusion"`
	Payload    string         `json:"payload,omitzero"` // exact bytes
	Item       *ItemProof     `json:"item,omitzero"`
}

// VersionProof reads the parts of the proof that version v is in the log under the latest
// checkpoint. If item is not empty, the proof also shows the descriptor with that id, or its
// absence.
func (c Client) VersionProof(ctx context.Context, v uint64, item string) (p Proof, err error) {
	p = Proof{Format: ProofFormat, Version: v}
	if p.Inclusion, err = c.Inclusion(ctx, v, 0); err != nil {
		return p, err
	}
	p.Checkpoint, p.Inclusion.Checkpoint = p.Inclusion.Checkpoint, ""
	entry, err := c.Entry(ctx, v)
	if err != nil {
		return p, err
	}
	p.Entry = string(entry)
	if item == "" {
		return p, nil
	}
	payload, err := c.Payload(ctx, v)
	if err != nil {
		return p, err
	}
	found, err := c.Item(ctx, v, item)
	p.Payload, p.Item = string(payload), &found
	return p, err
}

// Tile reads a tile by its path, such as "0/000.p/5".
func (c Client) Tile(ctx context.Context, path string) ([]byte, error) {
	return c.Bytes(ctx, "/registry/tile/"+path)
}

// CheckpointNow makes the node sign and archive a checkpoint.
func (c Client) CheckpointNow(ctx context.Context) (Checkpoint, error) {
	return client.Ask[Checkpoint](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/admin/v1/registry/checkpoint"})
}

// HighWater reads the high-water mark, and whether the log may be extended.
func (c Client) HighWater(ctx context.Context) (HighWater, error) {
	return client.Ask[HighWater](ctx, c.Client, client.Call{Path: "/admin/v1/registry/highwater"})
}

// Adopt accepts the log of the file of the node as the newest one.
func (c Client) Adopt(ctx context.Context) (HighWater, error) {
	return client.Ask[HighWater](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/admin/v1/registry/highwater/adopt"})
}

// CatchUp restores lost versions from a snapshot or an export on the disk of the node.
func (c Client) CatchUp(ctx context.Context, from string) (CaughtUp, error) {
	return client.Ask[CaughtUp](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/admin/v1/registry/catch-up", Body: CatchUp{From: from}})
}

// Propose sends a payload or a draft. wantB3, unless empty, is the hash that it must have. It is
// idempotent: the same payload returns the live proposal.
func (c Client) Propose(ctx context.Context, payload []byte, wantB3 string) (Proposed, error) {
	body := Propose{SchemaVersion: record.SchemaVersion, Payload: jsontext.Value(payload), PayloadB3: wantB3}
	return client.Ask[Proposed](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/registry/proposals", Body: body})
}

// Approve adds a signature. A repeat is refused with duplicate_approval and details.identical.
func (c Client) Approve(ctx context.Context, id string, a Approval) (Approved, error) {
	return client.Ask[Approved](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/registry/approvals/" + url.PathEscape(id), Body: a})
}

// Commit makes the proposal the next version. It is idempotent: replayed reports whether an earlier
// call made the version.
func (c Client) Commit(ctx context.Context, id string) (out Committed, replayed bool, err error) {
	h, err := c.Do(ctx,
		client.Call{Method: http.MethodPost, Path: "/registry/commit/" + url.PathEscape(id), Into: &out})
	return out, err == nil && h.Get(client.ReplayHeader) == "true", err
}

// Withdraw ends a live proposal. Only the capability that proposed it, or an admin, may.
func (c Client) Withdraw(ctx context.Context, id string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: "/registry/proposals/" + url.PathEscape(id)})
	return err
}

// Genesis installs version 1 in an empty log. A log with another genesis refuses with conflict.
func (c Client) Genesis(ctx context.Context, payload []byte, approvals []Approval) (Committed, error) {
	body := Genesis{Payload: jsontext.Value(payload), Approvals: approvals}
	return client.Ask[Committed](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/admin/v1/registry/genesis", Body: body})
}

// Stream calls each for every event of the registry stream, as client.Follow does.
func (c Client) Stream(ctx context.Context, o client.StreamOptions, each func(client.Event) error) error {
	return c.Follow(ctx, client.Feed{Path: "/registry/stream", Numbered: EventUpdate, Stands: registryStands}, o, each)
}

func registryStands(hello []byte) (uint64, error) {
	var h Hello
	err := json.Unmarshal(hello, &h)
	return h.Head.Version, err
}

func decimal(v uint64) string { return strconv.FormatUint(v, 10) }
