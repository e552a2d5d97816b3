package httpapi

import (
	"net/http"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// adminRow is what the operator's routes have in common.
func adminRow(method, pattern, summary string, h handler, answer ...openapi.Answer) Route {
	r := Route{
		Method: method, Pattern: "/admin/v1/" + pattern, Service: serviceNode, Scope: auth.ScopeAdmin, Class: ClassAdmin, Admin: true,
		Deadline: defaultDeadline, Endpoint: "admin", Summary: summary, Answers: answer, handle: h,
	}
	if r.writes() {
		r.Problems = []int{http.StatusConflict, http.StatusInsufficientStorage}
	}
	return r
}

// takes gives a row its body.
func (r Route) takes(in any) Route {
	r.Body, r.In = JSONBody, in
	return r
}

// under asks for another scope than node.admin, which implies it.
func (r Route) under(scope string) Route {
	r.Scope = scope
	return r
}

func (s *Server) adminRoutes() []Route {
	out := s.nodeRoutes()
	out = append(out, s.tokenRoutes()...)
	out = append(out, s.fileRoutes()...)
	return append(out, s.auditRoutes()...)
}

func (s *Server) nodeRoutes() []Route {
	const get, post, put = http.MethodGet, http.MethodPost, http.MethodPut
	ok := func(body any) openapi.Answer { return answers(http.StatusOK, body) }
	drain := adminRow(post, "drain", "Stop the node in order", s.postDrain, answers(http.StatusAccepted, struct{}{})).
		takes(wire.DrainRequest{}).under(scopeDrain)
	drain.Body = OptionJSON
	reload := adminRow(post, "config/reload", "Read the configuration again", s.postReload, ok(wire.Reloaded{}))
	reload.Deadline = reloadDeadline
	reload.Problems = append(reload.Problems, http.StatusUnprocessableEntity)
	profile := adminRow(get, "debug/profile/:profile", "A profile, a trace or the flight recorder", s.getProfile,
		answersRaw(typeBytes, "as go tool pprof and go tool trace read it"))
	profile.Socket, profile.Deadline = true, snapshotDeadline
	profile.Query = []openapi.Param{{Name: "seconds", Doc: "of what runs for a while", Sample: uint64(0), Min: 1, Max: maxProfileSeconds}}
	profile.Problems = []int{http.StatusConflict}
	return []Route{
		adminRow(get, "status", "The node's view of itself", s.getNodeStatus, ok(wire.Status{})),
		drain,
		adminRow(get, "config", "Every key in force and where it comes from", s.getConfig, ok(wire.ConfigShow{})),
		reload,
		adminRow(get, "tasks", "Tasks and their states", s.getTasks, ok(wire.TaskList{})),
		adminRow(get, "queues", "Channels and what waits in them", s.getQueues, ok(wire.QueueList{})),
		adminRow(get, "log-level", "The log level in force", s.getLogLevel, ok(wire.LogLevel{})),
		adminRow(put, "log-level", "Change the log level until the next start", s.putLogLevel, ok(wire.LogLevel{})).takes(wire.LogLevel{}),
		profile,
	}
}

func (s *Server) tokenRoutes() []Route {
	const get, post = http.MethodGet, http.MethodPost
	list := adminRow(get, "tokens", "Tokens not yet expired", s.getTokens, answers(http.StatusOK, wire.TokenList{})).under(scopeToken)
	list.Query = []openapi.Param{
		{Name: "cursor", Doc: "next of the page before"},
		{Name: "limit", Doc: "rows of a page", Sample: uint64(0), Min: 1, Max: maxTokenPage},
	}
	revoke := adminRow(post, "tokens/revoke", "End tokens before their time", s.postRevoke, answers(http.StatusOK, wire.Revoked{})).
		takes(wire.RevokeRequest{}).under(scopeToken)
	revoke.Problems = append(revoke.Problems, http.StatusNotFound)
	retire := adminRow(post, "keys/:kid/retire", "End a root key and its tokens", s.postRetire, answers(http.StatusOK, wire.KeyInfo{}))
	retire.Problems = append(retire.Problems, http.StatusNotFound)
	return []Route{
		list,
		adminRow(post, "tokens", "Mint a token", s.postToken, answers(http.StatusCreated, wire.Token{})).
			takes(wire.MintRequest{}).under(scopeToken),
		revoke,
		adminRow(post, "tokens/verify", "What a token would allow, and why not", s.postVerifyToken, answers(http.StatusOK, wire.Verdict{})).
			takes(wire.VerifyRequest{}).under(scopeToken),
		adminRow(get, "keys", "Root keys of tokens", s.getKeys, answers(http.StatusOK, wire.KeyList{})),
		adminRow(post, "keys/rotate", "Make a new root key the active one", s.postRotate, answers(http.StatusCreated, wire.KeyInfo{})),
		retire,
	}
}

func (s *Server) fileRoutes() []Route {
	const get, post = http.MethodGet, http.MethodPost
	lines := func(body any) openapi.Answer {
		return openapi.Answer{Status: http.StatusOK, Type: typeLines, Doc: "progress, then the end or a problem", Body: body}
	}
	snapshot := adminRow(post, "db/snapshot", "Copy the file while it is used", s.postSnapshot, lines(wire.SnapshotLine{})).
		takes(wire.SnapshotRequest{})
	snapshot.Deadline = snapshotDeadline
	check := adminRow(post, "db/check", "Verify a copy of the file", s.postCheck, lines(wire.CheckLine{}))
	check.Deadline = snapshotDeadline
	out := []Route{
		adminRow(get, "db/info", "What the file says of itself", s.getDBInfo, answers(http.StatusOK, wire.DBInfo{})),
		adminRow(get, "db/stats", "What the file and its committer are doing", s.getDBStats, answers(http.StatusOK, wire.DBStats{})),
		snapshot,
		check,
		adminRow(post, "db/accept-restore", "Let a restored node write", s.postAcceptRestore, answersNothing("writes are let in")),
	}
	if s.d.Registry != nil {
		out = append(out, s.genesisRoute())
	}
	return out
}

func (s *Server) genesisRoute() Route {
	r := adminRow(http.MethodPost, "registry/genesis", "Begin the registry's log", postGenesis(s.d.Registry), committed()...).takes(wire.Genesis{})
	r.Service, r.Deadline, r.Socket, r.Endpoint = serviceRegistry, commitDeadline, true, "genesis"
	r.Problems = writeProblems()
	return r
}

func (s *Server) auditRoutes() []Route {
	page := adminRow(http.MethodGet, "audit", "Rows of the audit chain, oldest first", s.getAudit, answers(http.StatusOK, wire.AuditPage{}))
	page.Query = []openapi.Param{
		{Name: "from", Doc: "seq of the first row", Sample: uint64(0), Min: 1, Max: maxVersion},
		{Name: "limit", Doc: "rows of a page", Sample: uint64(0), Min: 1, Max: maxAuditPage},
	}
	stream := adminRow(http.MethodGet, "audit/stream", "Rows of the audit chain as they are written", s.getAuditStream,
		openapi.Answer{Status: http.StatusOK, Type: typeEvents, Events: []openapi.Event{
			{Name: wire.EventHello, Doc: "the first frame", Body: wire.AuditHello{}},
			{Name: wire.EventAudit, Doc: "a row", Body: wire.AuditRow{}},
			{Name: wire.EventLagged, Doc: "rows that are not told; read them with GET audit", Body: wire.AuditLagged{}},
			{Name: wire.EventShutdown, Doc: "the node stops", Body: struct{}{}},
		}})
	stream.Class, stream.Deadline, stream.Headers = ClassStream, 0, []openapi.Param{lastEvent("row")}
	return []Route{page, stream}
}
