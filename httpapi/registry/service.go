package registry

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// Events feeds /registry/stream.
type Events interface {
	Head() *registry.HeadView
	Subscribe(consumer string) *flow.Subscription[registry.Update]
	Since(ctx context.Context, after uint64, limit int) ([]registry.Update, error)
}

// Engine is what the routes ask of the registry: its reads, its writes, each of which waits for an answer of the pipeline until ctx ends,
// what lets others check the log, and the guard, which shows and ends a rollback.
type Engine interface {
	Events
	Version(ctx context.Context, v uint64, withItems bool) (registry.Document, error)
	PayloadBytes(ctx context.Context, v uint64) ([]byte, error)
	EntryBytes(ctx context.Context, v uint64) ([]byte, error)
	Status(ctx context.Context, v uint64) (registry.VersionStatus, error)
	Diff(ctx context.Context, from, to uint64) (registry.Diff, error)
	Proposals(ctx context.Context, cursor string, limit int) (registry.ProposalList, error)
	Proposal(ctx context.Context, id string) (registry.Proposal, error)
	ProposalPayload(ctx context.Context, id string) ([]byte, error)
	Signers(ctx context.Context, epoch uint64) (Signers, error)
	Audit(ctx context.Context, from uint64, limit int) (registry.AuditChain, error)

	Propose(ctx context.Context, by engines.Actor, payload []byte, wantB3, corrID string) (registry.Proposed, error)
	Approve(ctx context.Context, by engines.Actor, id string, a record.Approval, corrID string) (registry.Approved, error)
	Commit(ctx context.Context, by engines.Actor, id, corrID string) (registry.Committed, error)
	Withdraw(ctx context.Context, by engines.Actor, id, corrID string) error
	Genesis(ctx context.Context, by engines.Actor, payload []byte, approvals []record.Approval, corrID string) (registry.Committed, error)

	LatestCheckpoint() (*checkpoint.Signed, error)
	ArchivedCheckpoints(ctx context.Context, before uint64, limit int) ([][]byte, error)
	CheckpointNow(ctx context.Context) (registry.Checkpoint, error)
	Inclusion(ctx context.Context, v, size uint64) (registry.InclusionProof, error)
	Consistency(ctx context.Context, from, to uint64) (registry.ConsistencyProof, error)
	ItemProof(ctx context.Context, v uint64, id string) (record.ItemProof, error)
	Tile(ctx context.Context, at logtree.At, width int, entries bool) ([]byte, error)

	HighWater(ctx context.Context) (registry.HighWater, error)
	Adopt(ctx context.Context, by engines.Actor, corrID string) error
	CatchUpFrom(ctx context.Context, by engines.Actor, path, corrID string) (registry.CaughtUp, error)
}

const (
	service = "registry"
	prefix  = "/registry/"

	paramVersion  = "v"
	paramEpoch    = "epoch"
	paramProposal = "id"

	paramTile = "path"
	typeNote  = "text/plain; charset=utf-8"

	proposeDeadline = 2 * time.Second
	commitDeadline  = 4 * time.Second
	catchUpDeadline = 10 * time.Minute
)

// New is the registry's part of the surface.
func New(e Engine) httpapi.Service {
	h := handlers{e, newEncoder()}
	return httpapi.Service{
		Name: service, Prefix: prefix, Errors: slices.Concat(recordRules(), rules()),
		Routes: slices.Concat(h.reads(), h.proofs(), h.writes(), h.admin()),
		Params: []httpapi.PathParam{
			httpapi.NumberParam(paramVersion, 1, "a number from 1"), httpapi.NumberParam(paramEpoch, 1, "a number from 1"),
			{Param: openapi.Param{Name: paramProposal, Doc: "of a proposal", Pattern: "^p_[0-9A-HJKMNP-TV-Z]{26}$"}, Check: isProposalID},
			{Param: openapi.Param{Name: paramTile, Doc: "of a tile: level, number, and .p/width of a partial one"}},
		},
		Clients: &obs.Family{Name: "registry_sse_clients", Type: obs.Gauge, Help: "Clients of the registry's event stream."},
		Ready: func(r *wire.Ready) {
			head := e.Head()
			r.Incarnation, r.Version, r.HeadB3 = head.Incarnation, head.Head.Version, head.Head.Hash.String()
		},
	}
}

// read fills in what the reads have in common.
func read(r *httpapi.Route) {
	r.Method, r.Pattern, r.Class, r.Deadline, r.Endpoint = http.MethodGet, prefix+r.Pattern, httpapi.ClassRead, httpapi.DefaultDeadline, httpapi.EndpointRead
	if r.Scope == "" {
		r.Problems = []int{http.StatusNotFound, http.StatusGone}
	}
}

// required is a number, from least on, that a query must have.
func required(name, doc string, least uint64) openapi.Param {
	p := openapi.Number(name, doc, httpapi.MaxNumber)
	p.Required, p.Min = true, least
	return p
}

func ok(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }

func (h handlers) reads() []httpapi.Route {
	tagged := func(r *httpapi.Route) {
		read(r)
		r.Headers = httpapi.IfNoneMatch()
	}
	return append(httpapi.Routes(tagged,
		httpapi.Route{Pattern: "head", Handle: h.getHead, Summary: "The newest version", Answers: httpapi.Tagged(Head{})},
		httpapi.Route{Pattern: ":v", Handle: h.getVersion, Summary: "One version with its items and signatures", Answers: httpapi.Tagged(Version{}),
			Query: []openapi.Param{{Name: "items", Doc: "0 leaves the items out", Enum: []string{"0", "1"}}}},
		httpapi.Route{Pattern: ":v/payload", Handle: getBytes(h.reg.PayloadBytes), Summary: "The signed bytes of a version", Answers: httpapi.Tagged(nil)},
		httpapi.Route{Pattern: ":v/entry", Handle: getBytes(h.reg.EntryBytes), Summary: "The log entry of a version", Answers: httpapi.Tagged(nil)},
		httpapi.Route{Pattern: ":v/status", Handle: byNumber(paramVersion, h.reg.Status), Summary: "What may change about a version", Answers: ok(VersionStatus{})},
		httpapi.Route{Pattern: "diff", Handle: h.getDiff, Summary: "What changed between two versions", Answers: ok(Diff{}),
			Query: []openapi.Param{required("from", "the version to begin at; 0: the empty set", 0), required("to", "the version to arrive at", 0)}},
		httpapi.Route{Pattern: "proposals", Handle: h.getProposals, Summary: "Live proposals, oldest first", Answers: ok(ProposalList{}),
			Query: []openapi.Param{{Name: "cursor", Doc: "next of the page before"}, openapi.Number("limit", "rows of a page", maxProposalPage)}},
		httpapi.Route{Pattern: "proposals/:id", Handle: h.getProposal, Summary: "One proposal", Answers: ok(Proposal{})},
		httpapi.Route{Pattern: "proposals/:id/payload", Handle: h.getProposalPayload, Summary: "The bytes to sign", Answers: httpapi.Tagged(nil)},
		httpapi.Route{Pattern: "signers", Handle: byNumber(paramEpoch, h.reg.Signers), Summary: "The signer set in force", Answers: ok(Signers{})},
		httpapi.Route{Pattern: "signers/:epoch", Handle: byNumber(paramEpoch, h.reg.Signers), Summary: "The signer set of an epoch", Answers: ok(Signers{})},
	), httpapi.Route{
		Method: http.MethodGet, Pattern: prefix + "stream", Handle: h.getStream, Class: httpapi.ClassStream, Endpoint: "stream",
		Headers: []openapi.Param{httpapi.LastEvent("version")}, Summary: "Versions as they are committed",
		Answers: httpapi.AnswersEvents(
			openapi.Event{Name: wire.EventHello, Doc: "the first frame", Body: Hello{}},
			openapi.Event{Name: EventUpdate, Doc: "a version was committed", Body: Update{}},
			openapi.Event{Name: wire.EventLagged, Doc: "versions that are not told; reconcile with diff", Body: Lagged{}},
		),
	})
}

// writes take any path parameter: one that is no id of a proposal is answered 404.
func (h handlers) writes() []httpapi.Route {
	write := func(r *httpapi.Route) {
		r.Pattern, r.Class, r.AnyParam, r.Problems = prefix+r.Pattern, httpapi.ClassWrite, true, writeProblems()
		if r.Scope = service + "." + r.Endpoint; r.Method == http.MethodDelete {
			r.Scope = service + ".propose"
		}
		if r.In != nil {
			r.Body = httpapi.SizedEither
		}
	}
	return httpapi.Routes(write,
		httpapi.Route{Method: http.MethodPost, Pattern: "proposals", Endpoint: "propose", Handle: h.postProposal, Deadline: proposeDeadline,
			Summary: "Propose the next version", In: Propose{}, Answers: httpapi.Answers(http.StatusAccepted, Proposed{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "approvals/:id", Endpoint: "approve", Handle: onProposal(h.postApproval), Deadline: proposeDeadline,
			Summary: "Add a signature to a proposal", In: Approval{}, Answers: ok(Approved{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "commit/:id", Endpoint: "commit", Handle: onProposal(h.postCommit), Deadline: commitDeadline,
			Summary: "Make a proposal the next version", Answers: committed()},
		httpapi.Route{Method: http.MethodDelete, Pattern: "proposals/:id", Endpoint: "withdraw", Handle: onProposal(h.deleteProposal), Deadline: proposeDeadline,
			Summary: "Take a proposal back", Answers: httpapi.AnswersNothing("it is withdrawn")},
	)
}

func (h handlers) proofs() []httpapi.Route {
	return httpapi.Routes(read,
		httpapi.Route{Pattern: "checkpoint", Handle: h.getCheckpoint, Summary: "The latest checkpoint; JSON if Accept asks for it", Answers: httpapi.AnswersRaw("text/plain", "a C2SP checkpoint, signed by the log key")},
		httpapi.Route{Pattern: "checkpoints", Handle: h.getCheckpoints, Summary: "Archived checkpoints, newest first", Answers: ok(CheckpointList{}),
			Query: []openapi.Param{openapi.Number("before", "size that all are below", httpapi.MaxNumber), openapi.Number("limit", "checkpoints of a page", maxCheckpointPage)}},
		httpapi.Route{Pattern: "proof/inclusion", Handle: proof("version", "size", h.reg.Inclusion), Summary: "Proof that a version is in the log", Answers: ok(InclusionProof{}),
			Query: []openapi.Param{required("version", "the version", 1), openapi.Number("size", "size of the log; that of the latest checkpoint if left out", httpapi.MaxNumber)}},
		httpapi.Route{Pattern: "proof/consistency", Handle: proof("from", "to", h.reg.Consistency), Summary: "Proof that the log has only grown", Answers: ok(ConsistencyProof{}),
			Query: []openapi.Param{required("from", "the smaller size", 1), openapi.Number("to", "the larger size; that of the latest checkpoint if left out", httpapi.MaxNumber)}},
		httpapi.Route{Pattern: ":v/item", Handle: h.getItem, Summary: "What a version says of one descriptor, with a proof of presence or absence", Answers: ok(ItemProof{}),
			Query: []openapi.Param{{Name: "id", Doc: "of the descriptor", Required: true}}},
		httpapi.Route{Pattern: "tile/*path", Handle: h.getTile, Summary: "A tile of the log tree, as the C2SP tlog-tiles layout names it", Answers: httpapi.AnswersRaw(httpapi.TypeBytes, "hashes of 32 bytes, or entries behind their lengths")},
		httpapi.Route{Pattern: "audit", Handle: h.getAudit, Scope: service + ".audit", Summary: "The chain of decisions and refusals", Answers: ok(AuditChain{}),
			Query: []openapi.Param{openapi.Number("from", "sequence number of the first record; 1 if left out", httpapi.MaxNumber),
				openapi.Number("limit", "records of a page", maxAuditPage)}},
	)
}

func (h handlers) admin() []httpapi.Route {
	admin := func(r *httpapi.Route) {
		r.Pattern, r.Class, r.Scope, r.Admin, r.Socket = "/admin/v1/registry/"+r.Pattern, httpapi.ClassAdmin, auth.ScopeAdmin, true, true
		if r.Deadline == 0 {
			r.Deadline = commitDeadline
		}
		if r.Method == http.MethodPost {
			r.Problems = writeProblems()
		}
	}
	return httpapi.Routes(admin,
		httpapi.Route{Method: http.MethodPost, Pattern: "genesis", Handle: h.postGenesis, Endpoint: "genesis", Body: httpapi.JSONBody,
			Summary: "Begin the registry's log", In: Genesis{}, Answers: committed()},
		httpapi.Route{Method: http.MethodPost, Pattern: "checkpoint", Handle: h.postCheckpoint, Endpoint: "checkpoint",
			Summary: "Sign and archive a checkpoint now", Answers: ok(Checkpoint{})},
		httpapi.Route{Method: http.MethodGet, Pattern: "highwater", Handle: h.getHighWater, Endpoint: httpapi.EndpointRead,
			Summary: "The high-water mark, and whether the log may be extended", Answers: ok(HighWater{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "highwater/adopt", Handle: h.postAdopt, Endpoint: "adopt",
			Summary: "Take the log of this file for the newest", Answers: ok(HighWater{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "catch-up", Handle: h.postCatchUp, Endpoint: "catch_up", Body: httpapi.JSONBody, Deadline: catchUpDeadline,
			Summary: "Bring the versions that this file has lost from a snapshot or an export on the node's disk", In: CatchUp{}, Answers: ok(CaughtUp{})},
	)
}

// committed answers the caller who made the version, and one who asks again.
func committed() []openapi.Answer {
	again := ok(Committed{})
	again[0].Doc = "an earlier request has made it"
	again[0].Headers = []openapi.Param{httpapi.Replayed("true")}
	return append(httpapi.Answers(http.StatusCreated, Committed{}), again...)
}

// writeProblems are what the registry refuses by its rules, or for now.
func writeProblems() []int {
	return []int{
		http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity, http.StatusInsufficientStorage,
	}
}

// refusal is a rule for what a later try does not change.
func refusal(is func(error) bool, status int, reason, code, title string) httpapi.ErrorRule {
	return httpapi.ErrorRule{Is: is, Outcome: httpapi.Outcome{Status: status, Reason: reason, Code: code}, Title: title}
}

// recordRules are what the signed formats refuse.
func recordRules() []httpapi.ErrorRule {
	malformed := refusal(httpapi.Is(record.ErrMalformed), http.StatusBadRequest, httpapi.ReasonMalformed, "Malformed", "Malformed request").
		With(httpapi.Field(func(e *record.FieldError) string { return e.Field }))
	malformed.Text = said(func(e *record.FieldError) string { return strings.TrimPrefix(e.Field+": "+e.Reason, ": ") })
	return []httpapi.ErrorRule{
		malformed,
		refusal(httpapi.Is(record.ErrHardLimit), http.StatusRequestEntityTooLarge, "hard_limit", "HardLimitExceeded", "Beyond a fixed limit"),
		refusal(httpapi.Is(record.ErrChainMismatch), http.StatusConflict, "chain_mismatch", "ChainMismatch", "Does not build on HEAD"),
		refusal(httpapi.Is(record.ErrVersionSkew), http.StatusConflict, "version_skew", "VersionSkew", "Version out of turn").
			With(httpapi.Detail(func(e *registry.ParentPendingError) httpapi.Details { return httpapi.Details{"parent": e.Parent} })),
		refusal(httpapi.IsA[*registry.GenesisApprovalError], http.StatusUnprocessableEntity, "bad_approval", "BadApproval", "Approval of the genesis does not count").
			With(httpapi.Detail(func(e *registry.GenesisApprovalError) httpapi.Details {
				return httpapi.Details{"approval": e.Index, "signer_id": e.SignerID}
			})),
		refusal(httpapi.Is(record.ErrInvalidSig), http.StatusUnprocessableEntity, "invalid_sig", "InvalidSig", "Invalid signature"),
		refusal(httpapi.Is(record.ErrRevokedKey), http.StatusUnprocessableEntity, "revoked_key", "RevokedKey", "Key is not active").
			With(httpapi.Detail(func(e *record.RevokedKeyError) httpapi.Details {
				return httpapi.Details{"signer_id": e.SignerID, "status": e.Status}
			})),
		refusal(httpapi.Is(record.ErrQuorum), http.StatusUnprocessableEntity, "quorum", "QuorumFailed", "Quorum not reached").
			With(httpapi.Detail(func(e *record.QuorumError) httpapi.Details { return httpapi.Details{"have": e.Have, "need": e.Need} })),
		refusal(httpapi.Is(record.ErrClockSkew), http.StatusUnprocessableEntity, "clock_skew", "ClockSkew", "Clock skew"),
	}
}

// rules are what the registry refuses.
func rules() []httpapi.ErrorRule {
	forbidden := refusal(httpapi.Is(registry.ErrForbidden), http.StatusForbidden, httpapi.ReasonForbidden, "Forbidden", "Not allowed")
	forbidden.Text = said(func(e *registry.ForbiddenError) string { return e.Reason })
	return []httpapi.ErrorRule{
		refusal(httpapi.Is(registry.ErrNotFound), http.StatusNotFound, httpapi.ReasonNotFound, "NotFound", "Not found"),
		refusal(httpapi.Is(registry.ErrExpired), http.StatusGone, "expired", "Expired", "Proposal has expired"),
		refusal(httpapi.Is(registry.ErrPruned), http.StatusGone, "pruned", "Pruned", "Version was pruned"),
		refusal(httpapi.IsA[*registry.DuplicateApprovalError], http.StatusConflict, "duplicate_approval", "DuplicateApproval", "Approved before").
			With(httpapi.Detail(func(e *registry.DuplicateApprovalError) httpapi.Details {
				return httpapi.Details{"identical": e.Identical}
			})),
		refusal(httpapi.Is(registry.ErrConflict), http.StatusConflict, httpapi.ReasonConflict, "Conflict", "Not in this state").
			With(httpapi.Detail(func(e *registry.StateError) httpapi.Details { return httpapi.Details{"state": e.State} })),
		forbidden,
		refusal(httpapi.Is(registry.ErrSource), http.StatusUnprocessableEntity, "bad_source", "BadSource", "Nothing to catch up from"),
		refusal(httpapi.Is(registry.ErrRange), http.StatusBadRequest, httpapi.ReasonMalformed, "Malformed", "Range not served"),
		refusal(httpapi.IsA[*registry.PendingLimitError], http.StatusConflict, "pending_limit", "PendingLimit", "Too many proposals").
			With(httpapi.Detail(func(e *registry.PendingLimitError) httpapi.Details {
				return httpapi.Details{"limit": e.Limit, "max": e.Max}
			})),
		{Is: httpapi.IsA[*registry.NotReadyError], Outcome: httpapi.Outcome{Status: http.StatusServiceUnavailable, Reason: httpapi.ReasonDegraded, Code: "NotReady", Retry: true},
			Title: "Not ready", Wait: httpapi.WaitDegraded,
			Details: httpapi.Detail(func(e *registry.NotReadyError) httpapi.Details { return httpapi.Details{"cause": e.Cause} })},
		{Is: httpapi.IsA[*registry.TimeoutError], Outcome: httpapi.Outcome{Status: http.StatusGatewayTimeout, Reason: httpapi.ReasonTimeout, Code: "Timeout", Retry: true},
			Title: "Deadline passed", Details: httpapi.Told(httpapi.Details{"outcome": "none"})},
	}
}

// said makes the text of an error of type T: what it tells beside title and reason.
func said[T error](text func(T) string) func(error) string {
	return func(err error) string {
		if e, ok := errors.AsType[T](err); ok {
			return text(e)
		}
		return err.Error()
	}
}
