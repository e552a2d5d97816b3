// Package trace records the steps of the registry as spans below those of requests.
//
// # Invariants
//
//  1. A span that ends with an error has its code: the reason of a refusal, as the audit chain
//     keeps it, or the state of the node.
//  2. No payload and no token is in a span.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package trace

import (
	"cmp"
	"context"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
)

// Span is one step of the registry in a trace. Without a tracer it is a no-op.
type Span struct{ span obs.Span }

// Start begins "svc.registry.<op>" below the span of the request in ctx.
func Start(ctx context.Context, tracer *obs.Tracer, op, corrID string) (context.Context, Span) {
	ctx, s := tracer.Start(ctx, "svc.registry."+op, tables.Service)
	s.Attr("corr_id", corrID)
	return ctx, Span{s}
}

// About adds the proposal, version and payload of the step. Zero values are left out.
func (s Span) About(proposal string, version uint64, payload b3.Digest) {
	if s.span == (obs.Span{}) {
		return
	}
	if proposal != "" {
		s.span.Attr("proposal_id", proposal)
	}
	if version > 0 {
		s.span.Int("target_version", int(version))
	}
	if !payload.IsZero() {
		s.span.Attr("payload_b3", payload.String())
	}
}

// Quorum adds the approvals that the payload needs.
func (s Span) Quorum(q document.Quorum) {
	s.span.Int("quorum_m", q.M)
	s.span.Int("quorum_n", q.N)
}

// End ends the span with its result. The code of a refusal is its reason in the audit chain.
func (s Span) End(err error) {
	result := "accepted"
	if err != nil {
		result = "rejected"
		s.span.Fail(err)
		s.span.Attr("err.code", cmp.Or(document.Reason(err), stateOf(err)))
	}
	s.span.Attr("result", result)
	s.span.End()
}

// stateOf returns the code of an error that is not a refusal: the state of the node or the
// deadline of the caller.
func stateOf(err error) string {
	var timeout *document.TimeoutError
	var notReady *document.NotReadyError
	switch {
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &notReady):
		return notReady.Cause
	case errors.Is(err, flow.ErrBusy):
		return "busy"
	}
	return "failed"
}
