package httpapi

import (
	"context"
	"net/http"

	"ronbox/httpapi/wire"
)

const (
	maxAuditPage  = 1000
	auditReplay   = 1000 // rows that a stream replays before it says lagged instead
	consumerAudit = "audit_sse"
)

// getAudit serves GET /admin/v1/audit?from=&limit=.
func (s *Server) getAudit(c *call) error {
	from, err := c.number("from", 1, maxVersion)
	if err != nil {
		return err
	}
	limit, err := c.number("limit", maxAuditPage, maxAuditPage)
	if err != nil {
		return err
	}
	page, err := s.d.Node.Audit(c.context(), from, int(limit))
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, page)
}

// getAuditStream serves GET /admin/v1/audit/stream.
func (s *Server) getAuditStream(c *call) error { return follow(s, c, s.auditSource()) }

func (s *Server) auditSource() *source[wire.AuditRow] {
	return &source[wire.AuditRow]{
		event: wire.EventAudit, consumer: consumerAudit, places: s.auditStreams,
		replayMax: auditReplay, subscribe: s.d.Node.SubscribeAudit,
		tip: s.auditTip, since: s.auditSince,
		id: func(r wire.AuditRow) uint64 { return r.Seq },
		hello: func(t tip) any {
			return wire.AuditHello{Incarnation: s.d.Node.Version().Incarnation, Last: t.last}
		},
		lagged: func(m missed, t tip) any {
			return wire.AuditLagged{Missed: m.count, From: m.from, To: m.to, Last: t.last}
		},
	}
}

func (s *Server) auditTip(ctx context.Context) (tip, error) {
	page, err := s.d.Node.Audit(ctx, 1, 1)
	return tip{first: page.First, last: page.Last}, err
}

func (s *Server) auditSince(ctx context.Context, after uint64, limit int) ([]wire.AuditRow, error) {
	page, err := s.d.Node.Audit(ctx, after+1, limit)
	return page.Rows, err
}
