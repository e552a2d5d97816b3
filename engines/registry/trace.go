package registry

import (
	"cmp"
	"context"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// span is one step of the registry in a trace. Without a tracer it costs nothing.
type span struct{ obs.Span }

// span begins "svc.registry.<op>" below the span of the request in ctx.
func (e *Engine) span(ctx context.Context, op, corrID string) (context.Context, span) {
	ctx, s := e.tracer.Start(ctx, "svc.registry."+op, service)
	s.Attr("corr_id", corrID)
	return ctx, span{s}
}

// about notes what the step works on; what is not known yet is left out.
func (s span) about(proposal string, version uint64, payload b3.Digest) {
	if s.Span == (obs.Span{}) {
		return
	}
	if proposal != "" {
		s.Attr("proposal_id", proposal)
	}
	if version > 0 {
		s.Int("target_version", int(version))
	}
	if !payload.IsZero() {
		s.Attr("payload_b3", payload.String())
	}
}

func (s span) quorum(q Quorum) {
	s.Int("quorum_m", q.M)
	s.Int("quorum_n", q.N)
}

// end notes how the step went. The code of a refusal is the reason that the audit chain has for it.
func (s span) end(err error) {
	result := "accepted"
	if err != nil {
		result = "rejected"
		s.Fail(err)
		s.Attr("err.code", cmp.Or(reasonOf(err), stateOf(err)))
	}
	s.Attr("result", result)
	s.End()
}

// stateOf is the word for what is no refusal: the node's own state or the caller's deadline.
func stateOf(err error) string {
	var timeout *TimeoutError
	var notReady *NotReadyError
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
