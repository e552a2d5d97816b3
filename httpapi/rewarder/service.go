package rewarder

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
)

const (
	service = "rewarder"
	prefix  = "/rewarder/"

	paramPolicy = "policy"
	paramUpload = "upload"
	paramPart   = "part"
	paramInputs = "inputs"
	paramEpoch  = "epoch"

	defaultPage = 100

	epochPattern = "^[A-Za-z0-9_.:-]{1,128}$"
	wantEpoch    = "must be 1 to 128 of the characters A-Z a-z 0-9 _ . : -, and neither . nor .."
	wantPolicy   = "must be 1 to 64 of the characters A-Z a-z 0-9 _ . -, and neither . nor .."

	computeDeadline = 2 * time.Second // of the answer, which is not the result
)

// New is the rewarder's part of the surface.
func New(e *rewarder.Engine) httpapi.Service {
	h := handlers{e}
	return httpapi.Service{
		Name: service, Prefix: prefix, Errors: rules(), Code: codeOf, Routes: slices.Concat(h.reads(), h.writes()),
		Params: []httpapi.PathParam{
			{Param: openapi.Param{Name: paramPolicy, Doc: "its id", Pattern: "^[A-Za-z0-9_.-]{1,64}$"}, Wrong: wantPolicy,
				Check: func(v string) bool { return record.CheckPolicyID(v) == nil }},
			{Param: openapi.Param{Name: paramEpoch, Doc: "its id", Pattern: epochPattern}, Wrong: wantEpoch,
				Check: func(v string) bool { return record.CheckEpoch(v) == nil }},
			httpapi.DigestParam(paramUpload, "as it was opened"), httpapi.DigestParam(paramInputs, "inputs_cid"),
			httpapi.NumberParam(paramPart, 0, "a number from 0, one after the other"),
		},
	}
}

// administer lists the scopes of which one allows to list and drop uploads: one's own, or all.
var administer = []string{service + ".inputs", rewarder.ScopeAdmin}

func (h handlers) reads() []httpapi.Route {
	read := func(r *httpapi.Route) {
		r.Method, r.Pattern, r.Class, r.Deadline, r.Endpoint = http.MethodGet, prefix+r.Pattern, httpapi.ClassRead, httpapi.DefaultDeadline, httpapi.EndpointRead
		if r.AnyOf == nil {
			r.Scope = service + ".inspect"
		}
		r.Problems = []int{http.StatusNotFound, http.StatusConflict}
	}
	answers := func(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }
	limit := openapi.Number("limit", "rows of a page", rewarder.MaxPage)
	after := openapi.Param{Name: "after", Doc: "next of the page before"}
	from := openapi.Param{Name: "from", Doc: "next of the page before", Sample: uint64(0)}
	return httpapi.Routes(read,
		httpapi.Route{Pattern: "policy/:policy", Handle: as(ok, h.getPolicy), Summary: "A policy and its signatures", Answers: answers(rewarder.Policy{})},
		httpapi.Route{Pattern: "inputs", Handle: paged(h.getInputs), AnyOf: administer, Summary: "Uploads of usage: the caller's own, or with rewarder.admin all",
			Answers: answers(rewarder.UploadPage{}), Query: []openapi.Param{after, limit}},
		httpapi.Route{Pattern: "inputs/:inputs", Handle: as(ok, h.getInput), Summary: "Sealed usage", Answers: answers(rewarder.Input{})},
		httpapi.Route{Pattern: "epochs", Handle: paged(h.getEpochs), Summary: "Epochs and their runs, by id", Answers: answers(rewarder.EpochPage{}),
			Query: []openapi.Param{after, limit}},
		httpapi.Route{Pattern: "epochs/:epoch", Handle: as(runStatus, h.getEpoch), Summary: "The run of an epoch, with its manifest once it is computed",
			Answers: append(answers(rewarder.Run{}), httpapi.Answers(http.StatusAccepted, rewarder.Run{})...)},
		httpapi.Route{Pattern: "epochs/:epoch/allocations", Handle: paged(h.getAllocations), Summary: "Who gets how much, by actor", Answers: answers(rewarder.AllocationPage{}),
			Query: []openapi.Param{after, limit}},
		httpapi.Route{Pattern: "epochs/:epoch/proof", Handle: as(ok, h.getProof), Summary: "Proof of what an actor gets, or that it gets nothing", Answers: answers(rewarder.RewardProof{}),
			Query: []openapi.Param{{Name: "actor", Doc: "its account", Required: true}}},
		httpapi.Route{Pattern: "epochs/:epoch/settlement", Handle: paged(h.getSettlement), Summary: "How far the payment is, transaction by transaction",
			Answers: answers(rewarder.Settlement{}), Query: []openapi.Param{from, limit}},
	)
}

func (h handlers) writes() []httpapi.Route {
	write := func(r *httpapi.Route) {
		r.Pattern, r.Class, r.Deadline = prefix+r.Pattern, httpapi.ClassWrite, httpapi.DefaultDeadline
		if r.AnyOf == nil {
			r.Scope = service + "." + r.Scope
		}
		r.Problems = []int{http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage}
		switch {
		case r.In == nil:
		case r.Media != "":
			r.Body, r.MaxBody = httpapi.StreamBody, maxPart
		default:
			r.Body = httpapi.JSONBody
		}
	}
	both := func(first int, body any) []openapi.Answer {
		return append(httpapi.Answers(first, body), httpapi.Answers(http.StatusOK, body)...)
	}
	part := httpapi.Route{Method: http.MethodPut, Pattern: "inputs/:upload/parts/:part", Endpoint: "parts", Scope: "inputs", Handle: h.putPart(false),
		Media: httpapi.TypeLines, In: UsageRow{}, Summary: "Add rows to an upload: sorted by actor, content and metric, each once, over all parts",
		Answers: httpapi.Answers(http.StatusOK, rewarder.Upload{})}
	csv := part
	csv.Pattern, csv.Media, csv.Handle = part.Pattern+"/csv", "text/csv", h.putPart(true)
	csv.Summary = "The same as CSV, each part under the header actor,metric,qty[,content]"
	return httpapi.Routes(write,
		httpapi.Route{Method: http.MethodPut, Pattern: "policy/:policy", Endpoint: "policy", Scope: "policy", Handle: as(putStatus, h.putPolicy),
			Summary: "Add a signed policy; its id stands for these bytes for ever", In: PolicyPut{}, Answers: both(http.StatusCreated, rewarder.Policy{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "inputs", Endpoint: "inputs", Scope: "inputs", Handle: as(created, h.postInput),
			Summary: "Open an upload of usage, or find it again", In: rewarder.OpenInput{}, Answers: httpapi.Answers(http.StatusCreated, rewarder.Upload{})},
		part, csv,
		httpapi.Route{Method: http.MethodPost, Pattern: "inputs/:upload/seal", Endpoint: "seal", Scope: "inputs", Handle: as(created, h.postSeal),
			Summary: "Seal an upload, with what the ledger has for it now", Answers: httpapi.Answers(http.StatusCreated, rewarder.Input{})},
		httpapi.Route{Method: http.MethodDelete, Pattern: "inputs/:upload", Endpoint: "drop", AnyOf: administer, Handle: h.deleteInput,
			Summary: "Drop an upload that no run uses: it can be declared anew", Answers: httpapi.AnswersNothing("it is dropped")},
		httpapi.Route{Method: http.MethodPost, Pattern: "epochs/:epoch/compute", Endpoint: "compute", Scope: "run", Handle: as(runStatus, h.postCompute),
			Summary: "Compute and pay an epoch, once", In: rewarder.ComputeRequest{}, Answers: both(http.StatusAccepted, rewarder.Run{}), Deadline: computeDeadline},
		httpapi.Route{Method: http.MethodPost, Pattern: "epochs/:epoch/emit", Endpoint: "emit", Scope: "run", Handle: as(paymentStatus, h.postEmit),
			Summary: "Go on paying a run whose payment was paused", Answers: both(http.StatusAccepted, rewarder.Run{})},
	)
}

// maxPart is the largest part of an upload in bytes.
const maxPart = 1 << 20

// codes are the rewarder's spellings of the reasons that services share; that of others is BAD_REQUEST.
var codes = map[string]string{
	httpapi.ReasonUnauth: "UNAUTHENTICATED", httpapi.ReasonForbidden: "UNAUTHORIZED", httpapi.ReasonNotFound: "NOT_FOUND", httpapi.ReasonConflict: "CONFLICT",
	httpapi.ReasonBusy: "BUSY", httpapi.ReasonInflight: "BUSY", httpapi.ReasonRate: "RATE_LIMITED", httpapi.ReasonTimeout: "TIMEOUT",
	httpapi.ReasonCommitUnsure: "TIMEOUT", httpapi.ReasonDraining: "DRAINING", httpapi.ReasonCanceled: "DRAINING", httpapi.ReasonStoreFull: "STORE_FULL",
	httpapi.ReasonDegraded: "DEPENDENCY_UNAVAILABLE", httpapi.ReasonRestored: "DEPENDENCY_UNAVAILABLE", httpapi.ReasonAmnesia: "DEPENDENCY_UNAVAILABLE",
	httpapi.ReasonStoreFailed: "DEPENDENCY_UNAVAILABLE", httpapi.ReasonInternal: "INTERNAL",
	httpapi.ReasonMethod: "METHOD_NOT_ALLOWED", "corrupt": "CORRUPT",
}

func codeOf(reason string) string { return cmp.Or(codes[reason], "BAD_REQUEST") }

// rules are what the rewarder refuses, and what it says otherwise of a refusal that services share.
func rules() []httpapi.ErrorRule {
	conflict := httpapi.ErrorRule{Outcome: httpapi.Outcome{Status: http.StatusConflict, Reason: httpapi.ReasonConflict, Code: "CONFLICT"}, Title: "Conflict"}
	field := func(e *rewarder.FieldError) string { return e.Field }
	return []httpapi.ErrorRule{
		{Is: httpapi.IsA[*rewarder.FieldError], Outcome: httpapi.Outcome{Status: http.StatusBadRequest, Reason: httpapi.ReasonMalformed, Code: "BAD_REQUEST"},
			Title: "Malformed request", Details: httpapi.Field(field)},
		{Is: httpapi.Is(rewarder.ErrNotFound), Outcome: httpapi.Outcome{Status: http.StatusNotFound, Reason: httpapi.ReasonNotFound, Code: "NOT_FOUND"}, Hint: "there is none here; GET /rewarder/epochs lists the epochs",
			Title: "Not found"},
		conflict.When(httpapi.IsA[*rewarder.ConflictError]).With(httpapi.Detail(func(e *rewarder.ConflictError) httpapi.Details {
			return httpapi.Details{"what": e.What, "stands": e.Has, "given": e.Given}
		})),
		{Is: httpapi.IsA[*rewarder.QuotaError], Outcome: httpapi.Outcome{Status: http.StatusInsufficientStorage, Reason: "quota", Code: "QUOTA_EXCEEDED"},
			Title: "Quota exceeded", Hint: "nothing was written: seal and run, or drop, uploads that no run uses; `ronbox rewarder inputs ls` lists them",
			Details: httpapi.Detail(func(e *rewarder.QuotaError) httpapi.Details {
				return httpapi.Details{"key": e.Key, "used_bytes": e.Used, "limit_bytes": e.Limit}
			})},
		conflict.When(httpapi.IsA[*rewarder.QuarantineError]).As("quarantined").Called("QUARANTINED", "Quarantined").
			With(httpapi.Detail(func(e *rewarder.QuarantineError) httpapi.Details {
				q := e.Run.Quarantine
				return httpapi.Details{"run_key": e.Run.RunKey, "commitment": e.Run.Commitment, "kind": q.Kind, "cause": q.Reason, "has": q.Has, "need": q.Need}
			})),
		{Is: httpapi.Is(rewarder.ErrDraining), Outcome: httpapi.Outcome{Status: http.StatusServiceUnavailable, Reason: httpapi.ReasonDraining, Code: "DRAINING", Retry: true},
			Title: "Node is draining", Wait: httpapi.WaitDrain, Hint: "nothing was begun; the node is on its way down"},
		{Is: httpapi.Is(rewarder.ErrLate), Outcome: httpapi.Outcome{Status: http.StatusGatewayTimeout, Reason: httpapi.ReasonTimeout, Code: "TIMEOUT"},
			Title: "Deadline passed", Details: httpapi.Told(httpapi.Details{"outcome": "none"}), Hint: "the deadline has passed: nothing was begun"},
		{Is: httpapi.Is(rewarder.ErrNoLedger), Outcome: httpapi.Outcome{Status: http.StatusServiceUnavailable, Reason: httpapi.ReasonDegraded, Code: "DEPENDENCY_UNAVAILABLE", Retry: true},
			Title: "Not ready", Wait: httpapi.WaitDegraded, Hint: "a neighbour did not answer, and nothing was begun; send it again after Retry-After",
			Details: httpapi.Told(httpapi.Details{"peer": "ledger"})},
	}
}
