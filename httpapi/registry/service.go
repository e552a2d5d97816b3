package registry

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

// Events feeds /registry/stream.
type Events interface {
	Head() *tables.HeadView
	Subscribe(consumer string) *flow.Subscription[document.Update]
	Since(ctx context.Context, after uint64, limit int) ([]document.Update, error)
	Emits() error // the reason if the registry sends no versions
}

// Engine is the part of the registry that the routes call: its reads, its writes, which wait for an
// answer of the pipeline until ctx ends, its proofs, and the fork guard.
type Engine interface {
	Events
	Version(ctx context.Context, v uint64, withItems bool) (document.Encoded, error)
	PayloadBytes(ctx context.Context, v uint64) ([]byte, error)
	EntryBytes(ctx context.Context, v uint64) ([]byte, error)
	Status(ctx context.Context, v uint64) (document.VersionStatus, error)
	Diff(ctx context.Context, from, to uint64) (document.Diff, error)
	Proposals(ctx context.Context, cursor string, limit int) (document.ProposalList, error)
	Proposal(ctx context.Context, id string) (document.Proposal, error)
	ProposalPayload(ctx context.Context, id string) ([]byte, error)
	Signers(ctx context.Context, epoch uint64) (registryapi.Signers, error)
	Audit(ctx context.Context, from uint64, limit int) (document.AuditChain, error)

	Propose(ctx context.Context, by engines.Actor, payload []byte, wantB3, corrID string) (document.Proposed, error)
	Approve(ctx context.Context, by engines.Actor, id string, a record.Approval,
		corrID string) (document.Approved, error)
	Commit(ctx context.Context, by engines.Actor, id, corrID string) (document.Committed, error)
	Withdraw(ctx context.Context, by engines.Actor, id, corrID string) error
	Genesis(ctx context.Context, by engines.Actor, payload []byte, approvals []record.Approval,
		corrID string) (document.Committed, error)

	LatestCheckpoint() (*checkpoint.Signed, error)
	ArchivedCheckpoints(ctx context.Context, before uint64, limit int) ([][]byte, error)
	CheckpointNow(ctx context.Context) (seal.Checkpoint, error)
	Inclusion(ctx context.Context, v, size uint64) (document.InclusionProof, error)
	Consistency(ctx context.Context, from, to uint64) (document.ConsistencyProof, error)
	ItemProof(ctx context.Context, v uint64, id string) (record.ItemProof, error)
	Tile(ctx context.Context, at logtree.At, width int, entries bool) ([]byte, error)
	Horizon(ctx context.Context) (document.Horizon, error)

	HighWater(ctx context.Context) (document.HighWater, error)
	Adopt(ctx context.Context, by engines.Actor, corrID string) error
	CatchUpFrom(ctx context.Context, by engines.Actor, path, corrID string) (document.CaughtUp, error)
}

const (
	service = "registry"
	prefix  = "/registry/"

	paramVersion  = "v"
	paramEpoch    = "epoch"
	paramProposal = "id"

	paramTile = "path"
	typeNote  = "text/plain; charset=utf-8"

	writeDeadline   = 5 * time.Second // the largest value of registry.timeouts, which bound the work
	catchUpDeadline = 10 * time.Minute
)

// New returns the part of the HTTP surface for the registry.
func New(e Engine) httpapi.Service {
	h := handlers{e, newEncoder(), &discovery{}}
	return httpapi.Service{
		Name:     service,
		Prefix:   prefix,
		Errors:   errorMaps(),
		Refusals: registryapi.Refusals,
		Routes:   slices.Concat(h.reads(), h.governance(), h.proofs(), h.writes(), h.admin()),
		Params: []httpapi.PathParam{
			httpapi.NumberParam(paramVersion, 1, "a number from 1"),
			httpapi.NumberParam(paramEpoch, 1, "a number from 1"),
			{
				Param: openapi.Param{Name: paramProposal, Doc: "of a proposal", Pattern: "^p_[0-9A-HJKMNP-TV-Z]{26}$"},
				Check: isProposalID,
			},
			{Param: openapi.Param{Name: paramTile, Doc: "of a tile: level, number, and .p/width of a partial one"}},
		},
		Clients: &obs.Family{
			Name: "registry_sse_clients", Type: obs.Gauge, Help: "Clients of the registry's event stream.",
		},
		Ready: func(r *wire.Ready) {
			head := e.Head()
			r.Incarnation, r.Version, r.HeadB3 = head.Incarnation, head.Head.Version, head.Head.Hash.String()
		},
	}
}

// read fills in the common members of reads.
func read(r *httpapi.Route) {
	httpapi.Read(prefix, "")(r)
	if r.Scope == "" {
		r.Problems = []int{http.StatusNotFound, http.StatusGone}
	}
}

func ok(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }

// taggedRead fills in the common members of reads with a tag.
func taggedRead(r *httpapi.Route) {
	read(r)
	r.Headers = httpapi.IfNoneMatch()
}

// reads returns the routes of versions.
func (h handlers) reads() []httpapi.Route {
	return append(httpapi.Routes(
		taggedRead,
		httpapi.Route{
			Pattern: "head", Handle: h.getHead, ID: "getRegistryHead", Summary: "The newest version",
			Answers: httpapi.Tagged(registryapi.Head{}),
		},
		httpapi.Route{
			Pattern: ":v",
			Handle:  h.getVersion,
			ID:      "getRegistryVersion",
			Summary: "One version with its items and signatures",
			Answers: httpapi.Tagged(registryapi.Version{}),
			Query:   httpapi.Params(withItems),
		},
		httpapi.Route{
			Pattern: ":v/payload", Handle: getBytes(h.reg.PayloadBytes), Copy: httpapi.CopyExact,
			ID: "getRegistryPayload", Summary: "The signed bytes of a version", Answers: httpapi.Tagged(nil),
		},
		httpapi.Route{
			Pattern: ":v/entry", Handle: getBytes(h.reg.EntryBytes), Copy: httpapi.CopyExact,
			ID: "getRegistryEntry", Summary: "The log entry of a version", Answers: httpapi.Tagged(nil),
		},
		httpapi.Route{
			Pattern: ":v/status", Handle: byNumber(paramVersion, h.reg.Status),
			ID: "getRegistryVersionStatus", Summary: "Properties of a version that may change",
			Answers: ok(registryapi.VersionStatus{}),
		},
		httpapi.Route{
			Pattern: "versions",
			Handle:  h.getVersions,
			ID:      "listVersions",
			Summary: "Versions, newest first",
			Answers: ok(registryapi.VersionList{}),
			Query:   httpapi.Params(versionsBefore, versionsLimit),
		},
		httpapi.Route{
			Pattern: "diff",
			Handle:  h.getDiff,
			ID:      "diffVersions",
			Summary: "Changes between two versions",
			Answers: ok(registryapi.Diff{}),
			Query:   httpapi.Params(diffFrom, diffTo),
		},
		httpapi.Route{
			Pattern: "sd",
			Handle:  h.getServices,
			ID:      "listScrapeTargets",
			Summary: "The service items of the newest version, as targets for Prometheus (http_sd)",
			Answers: httpapi.Tagged([]registryapi.TargetGroup{}),
			Query:   httpapi.Params(servicesWhat),
		},
	), httpapi.Route{
		Method:   http.MethodGet,
		Pattern:  prefix + "stream",
		Handle:   h.getStream,
		Class:    httpapi.ClassStream,
		Endpoint: "stream",
		Headers:  []openapi.Param{httpapi.LastEvent("version")},
		ID:       "streamRegistryVersions",
		Summary:  "Versions as they are committed",
		Answers: httpapi.AnswersEvents(
			openapi.Event{Name: wire.EventHello, Doc: "the first frame", Body: registryapi.Hello{}},
			openapi.Event{Name: registryapi.EventUpdate, Doc: "a version was committed", Body: registryapi.Update{}},
			openapi.Event{
				Name: wire.EventLagged, Doc: "versions that were not sent; reconcile with diff",
				Body: registryapi.Lagged{},
			},
		),
	})
}

// governance returns the routes of proposals and signers.
func (h handlers) governance() []httpapi.Route {
	return httpapi.Routes(
		taggedRead,
		httpapi.Route{
			Pattern: "proposals",
			Handle:  h.getProposals,
			ID:      "listProposals",
			Summary: "Live proposals, oldest first",
			Answers: ok(registryapi.ProposalList{}),
			Query:   httpapi.Params(proposalsCursor, proposalsLimit),
		},
		httpapi.Route{
			Pattern: "proposals/:id", Handle: h.getProposal, ID: "getProposal", Summary: "One proposal",
			Answers: ok(registryapi.Proposal{}),
		},
		httpapi.Route{
			Pattern: "proposals/:id/payload", Handle: h.getProposalPayload,
			ID: "getProposalPayload", Summary: "The bytes to sign", Answers: httpapi.Tagged(nil),
		},
		httpapi.Route{
			Pattern: "signers", Handle: byNumber(paramEpoch, h.reg.Signers),
			ID: "getSigners", Summary: "The signer set in force", Answers: ok(registryapi.Signers{}),
		},
		httpapi.Route{
			Pattern: "signers/:epoch", Handle: byNumber(paramEpoch, h.reg.Signers),
			ID: "getSignersOfEpoch", Summary: "The signer set of an epoch", Answers: ok(registryapi.Signers{}),
		},
	)
}

// writes returns the write routes. They accept any path parameter: an invalid id of a proposal is
// answered 404.
func (h handlers) writes() []httpapi.Route {
	write := func(r *httpapi.Route) {
		r.AnyParam, r.Problems = true, writeProblems()
		if r.In != nil {
			r.Body = httpapi.SizedEither
		}
		httpapi.Write(prefix, service)(r)
	}
	return httpapi.Routes(
		write,
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "proposals",
			Endpoint: "propose",
			Handle:   h.postProposal,
			Deadline: writeDeadline,
			ID:       "proposeVersion",
			Summary:  "Propose the next version",
			Doc: "Enters the next descriptor set, whole or as a delta, to be approved. A repetition returns the " +
				"live proposal. The number of pending proposals is bounded.",
			In:      registryapi.Propose{},
			Answers: httpapi.Answers(http.StatusAccepted, registryapi.Proposed{}),
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "approvals/:id",
			Endpoint: "approve",
			Handle:   onProposal(h.postApproval),
			Deadline: writeDeadline,
			ID:       "approveProposal",
			Summary:  "Add a signature to a proposal",
			Doc: "Records the signature of one signer after verifying it. A repetition is refused as " +
				"duplicate_approval, which says whether it is identical.",
			In:      registryapi.Approval{},
			Answers: ok(registryapi.Approved{}),
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "commit/:id",
			Endpoint: "commit",
			Handle:   onProposal(h.postCommit),
			Deadline: writeDeadline,
			ID:       "commitProposal",
			Summary:  "Make a proposal the next version",
			Doc: "Makes the proposal the next version if its approvals reach the quorum. A repetition gets the " +
				"answer of the first.",
			Answers: committed(),
		},
		httpapi.Route{
			Method:   http.MethodDelete,
			Pattern:  "proposals/:id",
			Endpoint: "withdraw",
			Scope:    service + ".propose",
			Handle:   onProposal(h.deleteProposal),
			Deadline: writeDeadline,
			ID:       "withdrawProposal",
			Summary:  "Withdraw a proposal",
			Doc: "Ends a live proposal and those stacked on it. Only its proposer or an admin may withdraw it. A " +
				"repetition gets 409.",
			Answers: httpapi.AnswersNothing("it is withdrawn"),
		},
	)
}

func (h handlers) admin() []httpapi.Route {
	admin := func(r *httpapi.Route) {
		r.Socket, r.Deadline = true, cmp.Or(r.Deadline, writeDeadline)
		httpapi.Admin("/admin/v1/registry/")(r)
		if r.Method == http.MethodPost {
			r.Problems = writeProblems()
		}
	}
	return httpapi.Routes(
		admin,
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "genesis",
			Handle:   h.postGenesis,
			Endpoint: "genesis",
			ID:       "installGenesis",
			Summary:  "Begin the log of the registry",
			Doc: "Commits version 1 with the first signers. A repetition gets the answer of the first; another " +
				"genesis is refused as conflict.",
			In:      registryapi.Genesis{},
			Answers: committed(),
		},
		httpapi.Route{Method: http.MethodPost, Pattern: "checkpoint", Handle: h.postCheckpoint, Endpoint: "checkpoint",
			ID: "signCheckpoint", Summary: "Sign and archive a checkpoint now",
			Doc:     "Signs and archives a checkpoint of the current log. A repetition signs the same size again.",
			Answers: ok(registryapi.Checkpoint{})},
		httpapi.Route{
			Method:   http.MethodGet,
			Pattern:  "highwater",
			Handle:   h.getHighWater,
			Endpoint: httpapi.EndpointRead,
			ID:       "getHighWater",
			Summary:  "The high-water mark, and whether the log may be extended",
			Answers:  ok(registryapi.HighWater{}),
		},
		httpapi.Route{Method: http.MethodPost, Pattern: "highwater/adopt", Handle: h.postAdopt, Endpoint: "adopt",
			ID: "adoptHighWater", Summary: "Accept the log of this file as the newest one",
			Doc: "Accepts the log of this file as the newest one: writes go on, and objections of witnesses are " +
				"settled. It is refused as conflict if nothing objects.",
			Answers: ok(registryapi.HighWater{})},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "catch-up",
			Handle:   h.postCatchUp,
			Endpoint: "catch_up",
			Deadline: catchUpDeadline,
			ID:       "catchUpRegistry",
			Summary:  "Restore lost versions from a snapshot or an export on the disk of the node",
			Doc: "Adds versions that this file lacks, from an export or a database file on the node, after " +
				"verifying each. A repetition adds nothing more.",
			In:      registryapi.CatchUp{},
			Answers: ok(registryapi.CaughtUp{}),
		},
	)
}

// committed returns the answers of a commit: to the request that made the version, and to a
// repeated one.
func committed() []openapi.Answer {
	again := ok(registryapi.Committed{})
	again[0].Doc = "an earlier request made it"
	again[0].Headers = []openapi.Param{httpapi.Replayed("true")}
	return append(httpapi.Answers(http.StatusCreated, registryapi.Committed{}), again...)
}

// writeProblems returns the statuses of refused writes.
func writeProblems() []int {
	return []int{
		http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity, http.StatusInsufficientStorage,
	}
}
