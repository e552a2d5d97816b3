package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

const (
	maxVersion      = 1<<53 - 1
	maxProposalPage = 100
)

// getHead serves GET /registry/head: bytes that were made when HEAD moved.
func getHead(reg RegistryReader) handler {
	return func(c *call) error {
		h := reg.Head()
		return c.sendTagged(cacheAsk, h.ETag, h.JSON)
	}
}

// version is the path parameter, checked by the router.
func (c *call) version() uint64 {
	v, _ := strconv.ParseUint(c.param(paramVersion), 10, 64)
	return v
}

// getVersion serves GET /registry/:v; ?items=0 leaves the items out.
func getVersion(reg RegistryReader) handler {
	return func(c *call) error {
		items := c.query.Get("items")
		if c.query.Has("items") && items != "0" && items != "1" {
			return &QueryError{"items", "must be 0 or 1"}
		}
		doc, err := reg.Version(c.context(), c.version(), items != "0")
		if err != nil {
			return err
		}
		return c.sendTagged(cacheForever, doc.ETag, doc.Body)
	}
}

// getBytes serves the exact payload or log entry of a version.
func getBytes(read func(ctx context.Context, v uint64) ([]byte, error)) handler {
	return func(c *call) error {
		raw, err := read(c.context(), c.version())
		if err != nil {
			return err
		}
		return c.sendTagged(cacheForever, tagOf(raw), raw)
	}
}

// tagOf is a strong validator of raw.
func tagOf(raw []byte) string { return `"` + b3.Sum(raw).String() + `"` }

// getStatus serves GET /registry/:v/status.
func getStatus(reg RegistryReader) handler {
	return func(c *call) error {
		st, err := reg.Status(c.context(), c.version())
		if err != nil {
			return err
		}
		return respondCached(c, http.StatusOK, cacheAsk, wire.VersionStatus(st))
	}
}

// getDiff serves GET /registry/diff?from=&to=.
func getDiff(reg RegistryReader) handler {
	return func(c *call) error {
		from, err := c.required("from", maxVersion)
		if err != nil {
			return err
		}
		to, err := c.required("to", maxVersion)
		if err != nil {
			return err
		}
		d, err := reg.Diff(c.context(), from, to)
		if err != nil {
			return err
		}
		return respondCached(c, http.StatusOK, cacheAsk, wire.Diff{Put: itemBytes(d.Put), Remove: d.Remove})
	}
}

func itemBytes(items []record.Item) []jsontext.Value {
	out := make([]jsontext.Value, len(items))
	for i, it := range items {
		out[i] = it.Bytes
	}
	return out
}

// getProposals serves GET /registry/proposals?cursor=&limit=.
func getProposals(reg RegistryReader) handler {
	return func(c *call) error {
		limit, err := c.number("limit", maxProposalPage, maxProposalPage)
		if err != nil {
			return err
		}
		cursor := c.query.Get("cursor")
		if cursor != "" && !isProposalID(cursor) {
			return &QueryError{"cursor", "must be one that this list gave"}
		}
		l, err := reg.Proposals(c.context(), cursor, int(limit))
		if err != nil {
			return err
		}
		out := wire.ProposalList{Proposals: make([]wire.Proposal, len(l.Proposals)), Next: l.Next}
		for i, p := range l.Proposals {
			out.Proposals[i] = proposalBody(p)
		}
		return respondCached(c, http.StatusOK, cacheAsk, out)
	}
}

// getProposal serves GET /registry/proposals/:id.
func getProposal(reg RegistryReader) handler {
	return func(c *call) error {
		p, err := reg.Proposal(c.context(), c.param(paramProposal))
		if err != nil {
			return err
		}
		return respondCached(c, http.StatusOK, cacheAsk, proposalBody(p))
	}
}

// getProposalPayload serves GET /registry/proposals/:id/payload: the bytes to sign.
func getProposalPayload(reg RegistryReader) handler {
	return func(c *call) error {
		raw, err := reg.ProposalPayload(c.context(), c.param(paramProposal))
		if err != nil {
			return err
		}
		return c.sendTagged(cacheAsk, tagOf(raw), raw)
	}
}

func proposalBody(p registry.Proposal) wire.Proposal {
	return wire.Proposal{
		ProposalID: p.ID, State: p.State, Version: p.Version, PayloadB3: p.PayloadB3.String(), PrevHash: p.PrevHash.String(),
		Kind: p.Kind, Mode: p.Mode, CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt, ItemsCount: p.ItemsCount,
		ItemsRoot: p.ItemsRoot, SignerSetB3: p.SignerSetB3.String(), Approvals: approvalBodies(p.Approvals),
		Quorum: wire.Quorum(p.Quorum), PayloadURL: payloadURL(p.ID),
	}
}

func approvalBodies(all []record.Approval) []wire.Approval {
	out := make([]wire.Approval, len(all))
	for i, a := range all {
		out[i] = wire.Approval(a)
	}
	return out
}

func payloadURL(id string) string { return "/registry/proposals/" + id + "/payload" }

// getSigners serves GET /registry/signers and /registry/signers/:epoch.
func getSigners(reg RegistryReader) handler {
	return func(c *call) error {
		epoch, _ := strconv.ParseUint(c.param(paramEpoch), 10, 64) // 0: the set in force
		d, err := reg.Signers(c.context(), epoch)
		if err != nil {
			return err
		}
		return respondCached(c, http.StatusOK, cacheAsk, wire.Signers{
			Epoch: d.Epoch, Version: d.Version, SignerSetB3: d.Set.B3().String(),
			SignerSet: d.Set.Bytes(), Artifact: d.Artifact,
		})
	}
}
