package node

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// Engine is the interface of the node to its routes. by is the caller, for the audit chain.
// Progress functions are called on the goroutine of the request, at any rate.
type Engine interface {
	State
	Tokens
	File
	Archived
	Closings
	AuditLog
	Inspection
}

// State reads and controls the state of the node.
type State interface {
	Status() nodeapi.Status
	Version() wire.VersionInfo
	// Drain starts the shutdown and returns at once.
	Drain(by engines.Actor, corrID, reason string)
	// Drained waits until the node has only its sockets and its file to close, and returns how the
	// work ended. It returns the error of the store if that fails before, or of ctx.
	Drained(ctx context.Context) (nodeapi.DrainLine, error)
	Config(ctx context.Context) (nodeapi.ConfigShow, error)
	Reload(ctx context.Context, by engines.Actor, corrID string) (nodeapi.Reloaded, error)
	Tasks() nodeapi.TaskList
	Queues() nodeapi.QueueList
	LogLevel() nodeapi.LogLevel
	SetLogLevel(ctx context.Context, by engines.Actor, corrID string, l nodeapi.LogLevel) (nodeapi.LogLevel, error)
	// Profile writes the profile called name. A sampling profile runs for d.
	Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error
}

// Tokens manages tokens and their root keys.
type Tokens interface {
	Mint(ctx context.Context, by engines.Actor, corrID string, m nodeapi.MintRequest) (nodeapi.Token, error)
	// Tokens lists the tokens that by may see: those of its tenant, if it has one.
	Tokens(ctx context.Context, by engines.Actor, cursor string, limit int) (nodeapi.TokenList, error)
	// Revoke returns after the revocation has taken effect.
	Revoke(ctx context.Context, by engines.Actor, corrID string, r nodeapi.RevokeRequest) (nodeapi.Revoked, error)
	VerifyToken(ctx context.Context, r nodeapi.VerifyRequest) (nodeapi.Verdict, error)
	Keys(ctx context.Context) (nodeapi.KeyList, error)
	RotateKey(ctx context.Context, by engines.Actor, corrID string) (nodeapi.KeyInfo, error)
	RetireKey(ctx context.Context, by engines.Actor, corrID, kid string) (nodeapi.KeyInfo, error)
}

// File manages the database file.
type File interface {
	DBInfo(ctx context.Context) (nodeapi.DBInfo, error)
	DBStats(ctx context.Context) (nodeapi.DBStats, error)
	AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error
	Snapshot(
		ctx context.Context,
		by engines.Actor,
		corrID string,
		r nodeapi.SnapshotRequest,
		progress func(done, total int64),
	) (nodeapi.Snapshot, error)
	CheckDB(
		ctx context.Context, by engines.Actor, corrID string, progress func(nodeapi.CheckLine),
	) (nodeapi.CheckLine, error)
}

// Archived is the archive of the node.
type Archived interface {
	Archive() nodeapi.Archive
	// ArchiveBase sends a base and waits until the target has it. It returns ErrArchiveOff,
	// ErrArchiveBusy, ErrArchiveTarget, ErrArchiveLocal or an error of the store.
	ArchiveBase(
		ctx context.Context, by engines.Actor, corrID string, progress func(nodeapi.ArchiveLine),
	) (nodeapi.Archive, error)
}

// AuditLog reads the audit chain.
type AuditLog interface {
	Audit(ctx context.Context, from uint64, limit int) (nodeapi.AuditPage, error)
	SubscribeAudit(consumer string) *flow.Subscription[nodeapi.AuditRow]
}

// Names of the service, of its scopes other than auth.ScopeAdmin, which implies them, and of its
// path parameters.
const (
	service      = "node"
	scopeRead    = "node.read"
	scopeDrain   = "node.drain"
	scopeToken   = "node.token"
	paramKid     = "kid"
	paramProfile = "profile"
	paramSession = "session"
)

const (
	reloadDeadline = 30 * time.Second // it tries again after 1, 2, 4 and 8 s
	longDeadline   = time.Hour
)

// New returns the operator's part of the surface.
func New(node Engine) httpapi.Service {
	h := handlers{node}
	return httpapi.Service{
		Name: service, Prefix: nodeapi.Prefix, Errors: slices.Concat(errorMaps(), closingErrors()),
		Refusals: nodeapi.Refusals,
		Routes: slices.Concat(h.stateRoutes(), h.inspectionRoutes(), h.tokenRoutes(), h.fileRoutes(), h.closingRoutes(),
			h.auditRoutes()),
		Params: []httpapi.PathParam{
			{
				Param: openapi.Param{Name: paramKid, Doc: "id of a root key", Pattern: httpapi.NamePattern},
				Check: httpapi.IsName,
			},
			{
				Param: openapi.Param{Name: paramSession, Doc: "of the console", Pattern: httpapi.NamePattern},
				Check: httpapi.IsName,
			},
			{
				Param: openapi.Param{Name: paramProfile, Doc: "the kind of profile", Enum: profileNames()},
				Check: httpapi.IsName,
			},
		},
	}
}

// own is complete for routes about this node and its copy of the file.
func own(r *httpapi.Route) {
	complete(r)
	r.Local = true
}

// complete sets the fields that the operator's routes have in common.
func complete(r *httpapi.Route) {
	switch {
	case r.Writes(), r.Socket: // a profile shows the memory of the process
	case r.Scope == "":
		r.AnyOf = []string{scopeRead, auth.ScopeAdmin}
	default:
		r.AnyOf, r.Scope = []string{scopeRead, r.Scope}, ""
	}
	httpapi.Admin(nodeapi.Prefix)(r)
	if r.Writes() {
		r.Problems = append(r.Problems, http.StatusConflict, http.StatusInsufficientStorage)
	}
}

const (
	get  = http.MethodGet
	post = http.MethodPost
	put  = http.MethodPut
)

func ok(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }

// progress describes lines that report progress.
func progress(body any) []openapi.Answer {
	return []openapi.Answer{
		{Status: http.StatusOK, Type: httpapi.TypeLines, Doc: "progress, then the end or a problem", Body: body},
	}
}

func (h handlers) stateRoutes() []httpapi.Route {
	return httpapi.Routes(
		own,
		httpapi.Route{
			Method:  get,
			Pattern: "status",
			Handle:  h.getStatus,
			ID:      "getStatus",
			Summary: "Status of the node",
			Answers: ok(nodeapi.Status{}),
		},
		httpapi.Route{
			Method:  post,
			Pattern: "drain",
			Handle:  h.postDrain,
			Scope:   scopeDrain,
			Body:    httpapi.OptionJSON,
			Drains:  true,
			Long:    true,
			ID:      "drainNode",
			Summary: "Drain and stop the node",
			Doc: "Begins the shutdown: writes are refused, running work is finished, then the process ends. A " +
				"repetition joins the drain that has begun.",
			In:      nodeapi.DrainRequest{},
			Answers: append(progress(nodeapi.DrainLine{}), httpapi.Answers(http.StatusAccepted, struct{}{})...),

			Deadline: longDeadline,
		},
		httpapi.Route{Method: get, Pattern: "config", Handle: h.getConfig,
			ID: "getConfig", Summary: "Configuration keys with their values and sources",
			Answers: ok(nodeapi.ConfigShow{})},
		httpapi.Route{
			Method:   post,
			Pattern:  "config/reload",
			Handle:   h.postReload,
			Deadline: reloadDeadline,
			ID:       "reloadConfig",
			Summary:  "Reload the configuration",
			Doc: "Reads the configuration again and puts it in force as a whole. If it is refused, the old one " +
				"stays in force. A repetition has no further effect.",
			Answers:  ok(nodeapi.Reloaded{}),
			Problems: []int{http.StatusUnprocessableEntity},
		},
		httpapi.Route{
			Method:  get,
			Pattern: "tasks",
			Handle:  h.getTasks,
			ID:      "listTasks",
			Summary: "Tasks and their states",
			Answers: ok(nodeapi.TaskList{}),
		},
		httpapi.Route{Method: get, Pattern: "queues", Handle: h.getQueues,
			ID: "listQueues", Summary: "Channels and their fill levels", Answers: ok(nodeapi.QueueList{})},
		httpapi.Route{
			Method:  get,
			Pattern: "log-level",
			Handle:  h.getLogLevel,
			ID:      "getLogLevel",
			Summary: "Current log level",
			Answers: ok(nodeapi.LogLevel{}),
		},
		httpapi.Route{Method: put, Pattern: "log-level", Handle: h.putLogLevel,
			ID: "setLogLevel", Summary: "Change the log level until the next start",
			Doc: "Changes the level of the log until the next start or reload. A repetition has no further " +
				"effect.",
			In: nodeapi.LogLevel{}, Answers: ok(nodeapi.LogLevel{})},
		httpapi.Route{
			Method:   get,
			Pattern:  "debug/profile/:profile",
			Handle:   h.getProfile,
			Socket:   true,
			Deadline: longDeadline,
			Long:     true,
			ID:       "getProfile",
			Summary:  "A profile, a trace or the flight recorder",
			Query:    httpapi.Params(profileFor),
			Answers:  httpapi.AnswersRaw(httpapi.TypeBytes, "as go tool pprof and go tool trace read it"),
			Problems: []int{http.StatusConflict},
		},
	)
}

func (h handlers) tokenRoutes() []httpapi.Route {
	return httpapi.Routes(
		complete,
		httpapi.Route{
			Method:  get,
			Pattern: "tokens",
			Handle:  h.getTokens,
			Scope:   scopeToken,
			ID:      "listTokens",
			Summary: "Tokens that have not expired",
			Query:   httpapi.Params(tokenCursor, tokenLimit),
			Answers: ok(nodeapi.TokenList{}),
		},
		httpapi.Route{Method: post, Pattern: "tokens", Handle: h.postToken, Scope: scopeToken,
			ID: "mintToken", Summary: "Mint a token",
			Doc: "Makes a token and lists it until it expires. The token is shown once, and a repetition mints " +
				"another one.",
			In: nodeapi.MintRequest{}, Answers: httpapi.Answers(http.StatusCreated, nodeapi.Token{})},
		httpapi.Route{
			Method:   post,
			Pattern:  "tokens/revoke",
			Handle:   h.postRevoke,
			Scope:    scopeToken,
			ID:       "revokeTokens",
			Summary:  "Revoke tokens",
			Doc:      "Revokes tokens; it answers after they are refused. A repetition has no further effect.",
			In:       nodeapi.RevokeRequest{},
			Answers:  ok(nodeapi.Revoked{}),
			Problems: []int{http.StatusNotFound},
		},
		httpapi.Route{Method: post, Pattern: "tokens/verify", Handle: h.postVerifyToken, Scope: scopeToken,
			ID: "verifyToken", Summary: "Check a token against a request",
			Doc: "Judges a token against a request as a route would, and changes nothing.",
			In:  nodeapi.VerifyRequest{}, Answers: ok(nodeapi.Verdict{})},
		httpapi.Route{
			Method:  get,
			Pattern: "keys",
			Handle:  h.getKeys,
			ID:      "listRootKeys",
			Summary: "Root keys of tokens",
			Answers: ok(nodeapi.KeyList{}),
		},
		httpapi.Route{Method: post, Pattern: "keys/rotate", Handle: h.postRotate,
			ID: "rotateRootKey", Summary: "Create and activate a new root key",
			Doc: "Makes a new root key, with which tokens are minted from then on. Tokens of older keys stay " +
				"valid. A repetition makes another key.",
			Answers: httpapi.Answers(http.StatusCreated, nodeapi.KeyInfo{})},
		httpapi.Route{Method: post, Pattern: "keys/:kid/retire", Handle: h.postRetire,
			ID: "retireRootKey", Summary: "Retire a root key and its tokens",
			Doc:     "Invalidates a root key that is not active, and all tokens made with it. It cannot be undone.",
			Answers: ok(nodeapi.KeyInfo{}), Problems: []int{http.StatusNotFound}},
	)
}

func (h handlers) fileRoutes() []httpapi.Route {
	return append(httpapi.Routes(
		own,
		httpapi.Route{
			Method:  get,
			Pattern: "db/info",
			Handle:  h.getDBInfo,
			ID:      "getDatabaseInfo",
			Summary: "Identity and size of the database file",
			Answers: ok(nodeapi.DBInfo{}),
		},
		httpapi.Route{Method: get, Pattern: "db/stats", Handle: h.getDBStats,
			ID: "getDatabaseStats", Summary: "Statistics of the database file and its committer",
			Answers: ok(nodeapi.DBStats{})},
		httpapi.Route{Method: post, Pattern: "db/snapshot", Handle: h.postSnapshot, Deadline: longDeadline, Long: true,
			ID: "takeSnapshot", Summary: "Take a snapshot of the database file",
			Doc: "Writes a verified copy of the file into a folder of the node while writes continue. A " +
				"repetition writes another copy.",
			In: nodeapi.SnapshotRequest{}, Answers: progress(nodeapi.SnapshotLine{})},
		httpapi.Route{Method: post, Pattern: "db/check", Handle: h.postCheck, Deadline: longDeadline, Long: true,
			ID: "checkDatabase", Summary: "Verify a copy of the database file",
			Doc: "Copies the file beside itself, verifies the copy and removes it. The data does not change. It " +
				"needs room for the copy.",
			Answers: progress(nodeapi.CheckLine{})},
		httpapi.Route{Method: get, Pattern: "archive", Handle: h.getArchive,
			ID: "getArchive", Summary: "State of the archive of this node", Answers: ok(nodeapi.Archive{})},
		httpapi.Route{Method: post, Pattern: "archive/base", Handle: h.postArchiveBase, Deadline: longDeadline,
			Long: true, ID: "takeArchiveBase", Summary: "Send a base to the archive now",
			Doc: "Takes a snapshot, sends it to the archive and waits until it is there. It also ends the state " +
				"foreign. A repetition without changes since sends nothing.",
			Answers: progress(nodeapi.ArchiveLine{})},
	), httpapi.Routes(
		complete,
		httpapi.Route{Method: post, Pattern: "db/accept-restore", Handle: h.postAcceptRestore,
			ID: "acceptRestore", Summary: "Accept a restore, which permits writes",
			Doc: "Permits writes on a restored node and records that in the audit chain. It has no effect on a " +
				"node that accepts writes.",
			Answers: httpapi.AnswersNothing("writes are permitted")},
	)...)
}

func (h handlers) auditRoutes() []httpapi.Route {
	return httpapi.Routes(
		complete,
		httpapi.Route{
			Method:  get,
			Pattern: "audit",
			Handle:  h.getAudit,
			ID:      "listAuditRows",
			Summary: "Rows of the audit chain, oldest first",
			Query:   httpapi.Params(auditFrom, auditLimit),
			Answers: ok(nodeapi.AuditPage{}),
		},
		httpapi.Route{Method: get, Pattern: "audit/stream", Handle: h.getAuditStream, Class: httpapi.ClassStream,
			ID: "streamAuditRows", Summary: "Rows of the audit chain as they are written",
			Headers: []openapi.Param{httpapi.LastEvent("row")},
			Answers: httpapi.AnswersEvents(
				openapi.Event{Name: wire.EventHello, Doc: "the first frame", Body: nodeapi.AuditHello{}},
				openapi.Event{Name: nodeapi.EventAudit, Doc: "a row", Body: nodeapi.AuditRow{}},
				openapi.Event{
					Name: wire.EventLagged,
					Doc:  "rows that were not sent; read them with GET audit",
					Body: nodeapi.AuditLagged{},
				},
			)},
	)
}
