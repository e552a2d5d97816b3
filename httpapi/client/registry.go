package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

// SchemaVersion is the registry schema that this client proposes in.
const SchemaVersion = "1.0.0"

// Head reads where the log stands; version 0 means that it has no genesis.
func (c *Client) Head(ctx context.Context) (wire.Head, error) {
	return ask[wire.Head](ctx, c, call{method: http.MethodGet, path: "/registry/head"})
}

// Version reads version v, with its whole set of items if items is true.
func (c *Client) Version(ctx context.Context, v uint64, items bool) (wire.Version, error) {
	k := call{method: http.MethodGet, path: "/registry/" + decimal(v), limit: largeBody}
	if !items {
		k.query = url.Values{"items": {"0"}}
	}
	return ask[wire.Version](ctx, c, k)
}

// VersionStatus reads what may still change about version v.
func (c *Client) VersionStatus(ctx context.Context, v uint64) (wire.VersionStatus, error) {
	return ask[wire.VersionStatus](ctx, c, call{method: http.MethodGet, path: "/registry/" + decimal(v) + "/status"})
}

// Payload reads the exact bytes that the signers of version v signed the hash of.
func (c *Client) Payload(ctx context.Context, v uint64) ([]byte, error) {
	return c.bytes(ctx, "/registry/"+decimal(v)+"/payload")
}

// Entry reads the exact bytes of the log entry of version v.
func (c *Client) Entry(ctx context.Context, v uint64) ([]byte, error) {
	return c.bytes(ctx, "/registry/"+decimal(v)+"/entry")
}

// Diff reads what leads from version from to version to.
func (c *Client) Diff(ctx context.Context, from, to uint64) (wire.Diff, error) {
	q := url.Values{"from": {decimal(from)}, "to": {decimal(to)}}
	return ask[wire.Diff](ctx, c, call{method: http.MethodGet, path: "/registry/diff", query: q, limit: largeBody})
}

// Proposals reads one page of the live proposals, oldest first; cursor is the Next of the page before, limit 0 the
// node's own page size.
func (c *Client) Proposals(ctx context.Context, cursor string, limit int) (wire.ProposalList, error) {
	k := call{method: http.MethodGet, path: "/registry/proposals", query: page("cursor", cursor, limit)}
	return ask[wire.ProposalList](ctx, c, k)
}

// Proposal reads the state of one proposal.
func (c *Client) Proposal(ctx context.Context, id string) (wire.Proposal, error) {
	return ask[wire.Proposal](ctx, c, call{method: http.MethodGet, path: "/registry/proposals/" + url.PathEscape(id)})
}

// ProposalPayload reads the bytes whose hash a signer of the proposal signs.
func (c *Client) ProposalPayload(ctx context.Context, id string) ([]byte, error) {
	return c.bytes(ctx, "/registry/proposals/"+url.PathEscape(id)+"/payload")
}

// Signers reads the signer set of an epoch, of the one in force when epoch is 0.
func (c *Client) Signers(ctx context.Context, epoch uint64) (wire.Signers, error) {
	path := "/registry/signers"
	if epoch > 0 {
		path += "/" + decimal(epoch)
	}
	return ask[wire.Signers](ctx, c, call{method: http.MethodGet, path: path})
}

// Propose sends a payload or a draft of one; wantB3, unless empty, is the hash it must have. Idempotent: the same
// payload gives the proposal that lives already.
func (c *Client) Propose(ctx context.Context, payload []byte, wantB3 string) (wire.Proposed, error) {
	body := wire.Propose{SchemaVersion: SchemaVersion, Payload: jsontext.Value(payload), PayloadB3: wantB3}
	return ask[wire.Proposed](ctx, c, call{method: http.MethodPost, path: "/registry/proposals", body: body})
}

// Approve adds a signature. A repeat is refused with duplicate_approval and details.identical.
func (c *Client) Approve(ctx context.Context, id string, a wire.Approval) (wire.Approved, error) {
	return ask[wire.Approved](ctx, c, call{method: http.MethodPost, path: "/registry/approvals/" + url.PathEscape(id), body: a})
}

// Commit makes the proposal the next version. Idempotent: replayed tells that an earlier call did it.
func (c *Client) Commit(ctx context.Context, id string) (out wire.Committed, replayed bool, err error) {
	h, err := c.do(ctx, call{method: http.MethodPost, path: "/registry/commit/" + url.PathEscape(id), into: &out})
	return out, err == nil && h.Get(replayHeader) == "true", err
}

// Withdraw ends a live proposal; only the capability that proposed may.
func (c *Client) Withdraw(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: "/registry/proposals/" + url.PathEscape(id)})
	return err
}

func (c *Client) bytes(ctx context.Context, path string) ([]byte, error) {
	var raw []byte
	_, err := c.do(ctx, call{method: http.MethodGet, path: path, into: &raw})
	return raw, err
}

func decimal(v uint64) string { return strconv.FormatUint(v, 10) }
