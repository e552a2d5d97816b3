package registry

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/httpapi"
	registryapi "ronbox/httpapi/wire/registry"
)

func (h handlers) getProposals(c *httpapi.Request) error {
	limit, err := proposalsLimit.Of(c)
	cursor, errCursor := proposalsCursor.Of(c)
	if err := cmp.Or(err, errCursor); err != nil {
		return err
	}
	l, err := h.reg.Proposals(c.Context(), cursor, int(limit))
	for i := range l.Proposals {
		addPayloadURL(&l.Proposals[i])
	}
	return answer(c, l, err)
}

func (h handlers) getProposal(c *httpapi.Request) error {
	p, err := h.reg.Proposal(c.Context(), c.Param(paramProposal))
	addPayloadURL(&p)
	return answer(c, p, err)
}

// addPayloadURL adds the path of the payload. An ended proposal has one only if it became a
// version.
func addPayloadURL(p *registryapi.Proposal) {
	if p.State == document.StateCommitted || p.Kind != "" {
		p.PayloadURL = payloadURL(p.ID)
	}
}

func payloadURL(id string) string { return "/registry/proposals/" + id + "/payload" }

// getProposalPayload sends the bytes to sign.
func (h handlers) getProposalPayload(c *httpapi.Request) error {
	raw, err := h.reg.ProposalPayload(c.Context(), c.Param(paramProposal))
	return tagged(c, httpapi.CacheAsk, raw, err)
}

func (h handlers) postProposal(c *httpapi.Request) error {
	var in registryapi.Propose
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.SchemaVersion != record.SchemaVersion {
		return httpapi.BadBody("schema_version", "must be "+record.SchemaVersion)
	}
	if err := checkPayload(in.Payload); err != nil {
		return err
	}
	p, err := h.reg.Propose(c.Context(), c.Actor(), in.Payload, in.PayloadB3, c.CorrID())
	if err != nil {
		return err
	}
	c.MarkReplayed(p.Replayed)
	p.PayloadURL = payloadURL(p.ID)
	return c.Respond(http.StatusAccepted, p)
}

// checkPayload checks that the member is an object. The engine checks its content.
func checkPayload(v jsontext.Value) error {
	switch v.Kind() {
	case '{':
		return nil
	case 0:
		return httpapi.BadBody("payload", "is missing")
	}
	return httpapi.BadBody("payload", "must be an object")
}

// onProposal returns the handler of a call about the proposal in the path. An invalid id is
// ErrNotFound.
func onProposal(serve func(c *httpapi.Request, id string) error) httpapi.Handler {
	return func(c *httpapi.Request) error {
		id := c.Param(paramProposal)
		if !isProposalID(id) {
			return document.ErrNotFound
		}
		return serve(c, id)
	}
}

func (h handlers) postApproval(c *httpapi.Request, id string) error {
	var in registryapi.Approval
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.ReceivedAt != "" {
		return httpapi.BadBody("received_at", "is the node's to fill")
	}
	a, err := h.reg.Approve(c.Context(), c.Actor(), id, in, c.CorrID())
	return done(c, a, err)
}

func (h handlers) postCommit(c *httpapi.Request, id string) error {
	made, err := h.reg.Commit(c.Context(), c.Actor(), id, c.CorrID())
	return answerCommitted(c, made, err)
}

// answerCommitted answers 201 if this request made the version, 200 if an earlier one did.
func answerCommitted(c *httpapi.Request, made document.Committed, err error) error {
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if made.Replayed {
		status = http.StatusOK
	}
	c.MarkReplayed(made.Replayed)
	return c.Respond(status, made)
}

func (h handlers) deleteProposal(c *httpapi.Request, id string) error {
	if err := h.reg.Withdraw(c.Context(), c.Actor(), id, c.CorrID()); err != nil {
		return err
	}
	return c.Empty()
}

func (h handlers) postGenesis(c *httpapi.Request) error {
	var in registryapi.Genesis
	if err := c.Decode(&in); err != nil {
		return err
	}
	if err := checkPayload(in.Payload); err != nil {
		return err
	}
	made, err := h.reg.Genesis(c.Context(), c.Actor(), in.Payload, in.Approvals, c.CorrID())
	return answerCommitted(c, made, err)
}

// isProposalID reports whether s is "p_" and a ULID.
func isProposalID(s string) bool {
	id, ok := strings.CutPrefix(s, "p_")
	return ok && httpapi.IsULID(id)
}
