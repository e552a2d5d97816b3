package httpapi

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

const registrySchema = "1.0.0"

// postProposal serves POST /registry/proposals.
func postProposal(reg RegistryWriter) handler {
	return func(c *call) error {
		var in wire.Propose
		if err := decode(c.body, &in); err != nil {
			return err
		}
		if in.SchemaVersion != registrySchema {
			return &BodyError{"schema_version", "must be " + registrySchema}
		}
		if err := checkPayload(in.Payload); err != nil {
			return err
		}
		p, err := reg.Propose(c.context(), c.actor, in.Payload, in.PayloadB3, c.corrID)
		if err != nil {
			return err
		}
		c.markReplayed(p.Replayed)
		return respond(c, http.StatusAccepted, wire.Proposed{
			ProposalID: p.ID, PayloadB3: p.PayloadB3.String(), ExpiresAt: p.ExpiresAt, PayloadURL: payloadURL(p.ID),
		})
	}
}

// checkPayload names the member; what is wrong inside it, the engine says.
func checkPayload(v jsontext.Value) error {
	switch v.Kind() {
	case '{':
		return nil
	case 0:
		return &BodyError{"payload", "is missing"}
	}
	return &BodyError{"payload", "must be an object"}
}

// proposalID is the path parameter; what cannot be one names nothing.
func (c *call) proposalID() (string, error) {
	id := c.param(paramProposal)
	if !isProposalID(id) {
		return "", registry.ErrNotFound
	}
	return id, nil
}

// postApproval serves POST /registry/approvals/:id.
func postApproval(reg RegistryWriter) handler {
	return func(c *call) error {
		id, err := c.proposalID()
		if err != nil {
			return err
		}
		var in wire.Approval
		if err := decode(c.body, &in); err != nil {
			return err
		}
		if in.ReceivedAt != "" {
			return &BodyError{"received_at", "is the node's to fill"}
		}
		a, err := reg.Approve(c.context(), c.actor, id, record.Approval(in), c.corrID)
		if err != nil {
			return err
		}
		return respond(c, http.StatusOK, wire.Approved{
			Status: "accepted", Approvals: a.Approvals, Quorum: wire.Quorum(a.Quorum),
		})
	}
}

// postCommit serves POST /registry/commit/:id: 201 to who made the version, 200 to who asks again.
func postCommit(reg RegistryWriter) handler {
	return func(c *call) error {
		id, err := c.proposalID()
		if err != nil {
			return err
		}
		done, err := reg.Commit(c.context(), c.actor, id, c.corrID)
		if err != nil {
			return err
		}
		return respondCommitted(c, done)
	}
}

func respondCommitted(c *call, done registry.Committed) error {
	status := http.StatusCreated
	if done.Replayed {
		status = http.StatusOK
	}
	c.markReplayed(done.Replayed)
	return respond(c, status, wire.Committed{
		Version: done.Version, PayloadB3: done.PayloadB3.String(), CommittedAt: done.CommittedAt, Hash: done.Hash.String(),
	})
}

// deleteProposal serves DELETE /registry/proposals/:id.
func deleteProposal(reg RegistryWriter) handler {
	return func(c *call) error {
		id, err := c.proposalID()
		if err != nil {
			return err
		}
		if err := reg.Withdraw(c.context(), c.actor, id, c.corrID); err != nil {
			return err
		}
		return c.empty()
	}
}

// postGenesis serves POST /admin/v1/registry/genesis.
func postGenesis(reg RegistryWriter) handler {
	return func(c *call) error {
		var in wire.Genesis
		if err := decode(c.body, &in); err != nil {
			return err
		}
		if err := checkPayload(in.Payload); err != nil {
			return err
		}
		approvals := make([]record.Approval, len(in.Approvals))
		for i, a := range in.Approvals {
			approvals[i] = record.Approval(a)
		}
		done, err := reg.Genesis(c.context(), c.actor, in.Payload, approvals, c.corrID)
		if err != nil {
			return err
		}
		return respondCommitted(c, done)
	}
}
