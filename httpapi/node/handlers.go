package node

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// handlers serve the operator's routes.
type handlers struct{ node Engine }

// maxReason bounds the reason that a person gives for a change, in bytes. It is kept on the audit
// chain.
const maxReason = 1024

// getStatus serves GET /admin/v1/status.
func (h handlers) getStatus(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.Status())
}

// postDrain serves POST /admin/v1/drain: an answer before the node stops or, with wait, a line at
// once and one with the counts of the work that ended.
func (h handlers) postDrain(c *httpapi.Request) error {
	var in nodeapi.DrainRequest
	if body := c.Body(); len(body) > 0 {
		if err := httpapi.Decode(body, &in); err != nil {
			return err
		}
	}
	if len(in.Reason) > maxReason {
		return httpapi.BadBody("reason", "must be at most "+strconv.Itoa(maxReason)+" bytes")
	}
	h.node.Drain(c.Actor(), c.CorrID(), in.Reason)
	if !in.Wait {
		return c.Respond(http.StatusAccepted, struct{}{})
	}
	lines := c.Lines()
	lines.Write(nodeapi.DrainLine{Draining: true})
	done, err := h.node.Drained(c.Context())
	if err != nil {
		return lines.End(err, func(p *wire.Problem) any { return nodeapi.DrainLine{Draining: true, Problem: p} })
	}
	lines.Write(done)
	return nil
}

// getTasks serves GET /admin/v1/tasks.
func (h handlers) getTasks(c *httpapi.Request) error { return c.Respond(http.StatusOK, h.node.Tasks()) }

// getQueues serves GET /admin/v1/queues.
func (h handlers) getQueues(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.Queues())
}

// getLogLevel serves GET /admin/v1/log-level.
func (h handlers) getLogLevel(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.LogLevel())
}

// putLogLevel serves PUT /admin/v1/log-level.
func (h handlers) putLogLevel(c *httpapi.Request) error {
	var in nodeapi.LogLevel
	if err := c.Decode(&in); err != nil {
		return err
	}
	switch in.Level {
	case "trace", "debug", "info", "warn", "error":
	default:
		return httpapi.BadBody("level", "must be trace, debug, info, warn or error")
	}
	set, err := h.node.SetLogLevel(c.Context(), c.Actor(), c.CorrID(), in)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, set)
}

// getConfig serves GET /admin/v1/config.
func (h handlers) getConfig(c *httpapi.Request) error {
	show, err := h.node.Config(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, show)
}

// postReload serves POST /admin/v1/config/reload.
func (h handlers) postReload(c *httpapi.Request) error {
	done, err := h.node.Reload(c.Context(), c.Actor(), c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, done)
}

const maxTokenPage = 1000

// Parameters of the list of tokens.
var (
	tokenCursor = httpapi.Checked(httpapi.Text("cursor", "next of the previous page"), "",
		"must be one that this list gave", httpapi.IsName)
	tokenLimit = httpapi.Number("limit", maxTokenPage, 1, maxTokenPage, "rows of a page")
)

// getTokens serves GET /admin/v1/tokens?cursor=&limit=.
func (h handlers) getTokens(c *httpapi.Request) error {
	limit, err := tokenLimit.Of(c)
	if err != nil {
		return err
	}
	cursor, err := tokenCursor.Of(c)
	if err != nil {
		return err
	}
	list, err := h.node.Tokens(c.Context(), c.Actor(), cursor, int(limit))
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, list)
}

// postToken serves POST /admin/v1/tokens.
func (h handlers) postToken(c *httpapi.Request) error {
	var in nodeapi.MintRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if len(in.Scopes) == 0 {
		return httpapi.BadBody("scopes", "is missing")
	}
	t, err := h.node.Mint(c.Context(), c.Actor(), c.CorrID(), in)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusCreated, t)
}

// postRevoke serves POST /admin/v1/tokens/revoke. It answers once the revocation has taken effect.
func (h handlers) postRevoke(c *httpapi.Request) error {
	var in nodeapi.RevokeRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if err := oneTarget(in); err != nil {
		return err
	}
	done, err := h.node.Revoke(c.Context(), c.Actor(), c.CorrID(), in)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, done)
}

// oneTarget refuses a revocation with no target or with two.
func oneTarget(in nodeapi.RevokeRequest) error {
	n := 0
	for _, given := range []bool{in.TID != "", in.Kid != "", in.Tenant != "", in.All} {
		if given {
			n++
		}
	}
	if n != 1 {
		return httpapi.BadBody("", "exactly one of tid, kid, tenant and all must be given")
	}
	return nil
}

// postVerifyToken serves POST /admin/v1/tokens/verify: whether a token permits a request, and all
// reasons if not.
func (h handlers) postVerifyToken(c *httpapi.Request) error {
	var in nodeapi.VerifyRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.Token == "" {
		return httpapi.BadBody("token", "is missing")
	}
	v, err := h.node.VerifyToken(c.Context(), in)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, v)
}

// getKeys serves GET /admin/v1/keys.
func (h handlers) getKeys(c *httpapi.Request) error {
	list, err := h.node.Keys(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, list)
}

// postRotate serves POST /admin/v1/keys/rotate.
func (h handlers) postRotate(c *httpapi.Request) error {
	k, err := h.node.RotateKey(c.Context(), c.Actor(), c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusCreated, k)
}

// postRetire serves POST /admin/v1/keys/:kid/retire.
func (h handlers) postRetire(c *httpapi.Request) error {
	k, err := h.node.RetireKey(c.Context(), c.Actor(), c.CorrID(), c.Param(paramKid))
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, k)
}

// getDBInfo serves GET /admin/v1/db/info.
func (h handlers) getDBInfo(c *httpapi.Request) error {
	info, err := h.node.DBInfo(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, info)
}

// getDBStats serves GET /admin/v1/db/stats.
func (h handlers) getDBStats(c *httpapi.Request) error {
	stats, err := h.node.DBStats(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, stats)
}

// postAcceptRestore serves POST /admin/v1/db/accept-restore.
func (h handlers) postAcceptRestore(c *httpapi.Request) error {
	if err := h.node.AcceptRestore(c.Context(), c.Actor(), c.CorrID()); err != nil {
		return err
	}
	return c.Empty()
}

// postSnapshot serves POST /admin/v1/db/snapshot: lines of progress, then the snapshot or the
// problem. A failure before the first line is an ordinary refusal.
func (h handlers) postSnapshot(c *httpapi.Request) error {
	var in nodeapi.SnapshotRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if !filepath.IsAbs(in.Dir) {
		return httpapi.BadBody("dir", "must be an absolute path on the node")
	}
	lines := c.Lines()
	snap, err := h.node.Snapshot(c.Context(), c.Actor(), c.CorrID(), in, func(done, total int64) {
		lines.Progress(nodeapi.SnapshotLine{Done: done, Total: total})
	})
	if err != nil {
		return lines.End(err, func(p *wire.Problem) any { return nodeapi.SnapshotLine{Problem: p} })
	}
	lines.Write(nodeapi.SnapshotLine{File: snap.File, Manifest: snap.Manifest, B3: snap.B3, Seq: snap.Seq})
	return nil
}

// postCheck serves POST /admin/v1/db/check: lines of progress, then the verdict or the problem.
func (h handlers) postCheck(c *httpapi.Request) error {
	lines := c.Lines()
	verdict, err := h.node.CheckDB(c.Context(), c.Actor(), c.CorrID(), func(l nodeapi.CheckLine) { lines.Progress(l) })
	if err != nil {
		return lines.End(err, func(p *wire.Problem) any { return nodeapi.CheckLine{Problem: p} })
	}
	lines.Write(verdict)
	return nil
}

// getArchive serves GET /admin/v1/archive.
func (h handlers) getArchive(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.Archive())
}

// postArchiveBase serves POST /admin/v1/archive/base: lines of progress, then the state or the
// problem. A failure before the first line is an ordinary refusal.
func (h handlers) postArchiveBase(c *httpapi.Request) error {
	lines := c.Lines()
	tell := func(l nodeapi.ArchiveLine) { lines.Progress(l) }
	state, err := h.node.ArchiveBase(c.Context(), c.Actor(), c.CorrID(), tell)
	if err != nil {
		return lines.End(err, func(p *wire.Problem) any { return nodeapi.ArchiveLine{Problem: p} })
	}
	lines.Write(nodeapi.ArchiveLine{Archive: &state})
	return nil
}

const (
	maxProfileSeconds = 300
	profileSeconds    = 10 // default duration of profiles that sample
)

// profileNames returns the values of :name in GET /admin/v1/debug/profile/:name.
func profileNames() []string {
	return []string{"heap", "allocs", "goroutine", "block", "mutex", "threadcreate", "profile", "trace", "flight"}
}

var profileFor = httpapi.Number("seconds", profileSeconds, 1, maxProfileSeconds, "duration of a recording")

// getProfile serves GET /admin/v1/debug/profile/:name?seconds=. HEAD does not run a profile.
func (h handlers) getProfile(c *httpapi.Request) error {
	name := c.Param(paramProfile)
	if !slices.Contains(profileNames(), name) {
		return httpapi.ErrNoRoute
	}
	seconds, err := profileFor.Of(c)
	if err != nil {
		return err
	}
	c.Set("Content-Type", httpapi.TypeBytes)
	c.Set("Cache-Control", httpapi.CacheNone)
	if c.Head() {
		c.WriteHeader(http.StatusOK)
		return nil
	}
	return h.node.Profile(c.Context(), name, time.Duration(seconds)*time.Second, c)
}

const (
	maxAuditPage  = 1000
	auditReplay   = 1000 // rows that a stream replays before it sends lagged
	consumerAudit = "audit_sse"
)

// Parameters of the audit chain.
var (
	auditFrom  = httpapi.Number("from", 1, 1, httpapi.MaxNumber, "seq of the first row")
	auditLimit = httpapi.Number("limit", maxAuditPage, 1, maxAuditPage, "rows of a page")
)

// getAudit serves GET /admin/v1/audit?from=&limit=.
func (h handlers) getAudit(c *httpapi.Request) error {
	from, err := auditFrom.Of(c)
	if err != nil {
		return err
	}
	limit, err := auditLimit.Of(c)
	if err != nil {
		return err
	}
	page, err := h.node.Audit(c.Context(), from, int(limit))
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, page)
}

// getAuditStream serves GET /admin/v1/audit/stream.
func (h handlers) getAuditStream(c *httpapi.Request) error {
	return httpapi.Follow(c, AuditStream(h.node))
}

// AuditStream returns the event stream of the audit chain.
func AuditStream(node Engine) *httpapi.Source[nodeapi.AuditRow] {
	h := handlers{node}
	return &httpapi.Source[nodeapi.AuditRow]{
		Event: nodeapi.EventAudit, Consumer: consumerAudit, ReplayMax: auditReplay, Subscribe: h.node.SubscribeAudit,
		Head: h.auditHead, Since: h.auditSince,
		ID: func(r nodeapi.AuditRow) uint64 { return r.Seq },
		Hello: func(at httpapi.LogHead) any {
			return nodeapi.AuditHello{Incarnation: h.node.Version().Incarnation, Last: at.Last}
		},
		Lagged: func(m httpapi.Missed, at httpapi.LogHead) any {
			return nodeapi.AuditLagged{Missed: m.Count, From: m.From, To: m.To, Last: at.Last}
		},
	}
}

func (h handlers) auditHead(ctx context.Context) (httpapi.LogHead, error) {
	page, err := h.node.Audit(ctx, 1, 1)
	return httpapi.LogHead{First: page.First, Last: page.Last}, err
}

func (h handlers) auditSince(ctx context.Context, after uint64, limit int) ([]nodeapi.AuditRow, error) {
	page, err := h.node.Audit(ctx, after+1, limit)
	return page.Rows, err
}
