package rewarder

import (
	"net/http"
	"slices"
	"time"

	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

const (
	service = "rewarder"
	prefix  = "/rewarder/"

	scopeInputs = service + ".inputs"
	scopeRun    = service + ".run"

	paramPolicy = "policy"
	paramUpload = "upload"
	paramPart   = "part"
	paramInputs = "inputs"
	paramEpoch  = "epoch"

	defaultPage = 100

	epochPattern = "^[A-Za-z0-9_.:-]{1,128}$"
	wantEpoch    = "must be 1 to 128 of the characters A-Z a-z 0-9 _ . : -, and neither . nor .."
	wantPolicy   = "must be 1 to 64 of the characters A-Z a-z 0-9 _ . -, and neither . nor .."
)

// New returns the routes of the rewarder over e.
func New(e *rewarder.Engine) httpapi.Service {
	h := handlers{e}
	return httpapi.Service{
		Name:     service,
		Prefix:   prefix,
		Errors:   errorMaps(),
		Refusals: rewarderapi.Refusals,
		Routes:   slices.Concat(h.reads(), h.writes(), h.more()),
		Params: []httpapi.PathParam{
			{
				Param: openapi.Param{Name: paramPolicy, Doc: "its id", Pattern: "^[A-Za-z0-9_.-]{1,64}$"},
				Wrong: wantPolicy,
				Check: func(v string) bool { return record.CheckPolicyID(v) == nil },
			},
			{Param: openapi.Param{Name: paramEpoch, Doc: "its id", Pattern: epochPattern}, Wrong: wantEpoch,
				Check: func(v string) bool { return record.CheckEpoch(v) == nil }},
			httpapi.DigestParam(paramUpload, "as it was opened"),
			httpapi.DigestParam(paramInputs, "to read: inputs_cid; to drop: the id of the upload"),
			httpapi.NumberParam(paramPart, 0, "a number from 0, one after the other"),
		},
	}
}

// administer lists the scopes that allow listing and dropping uploads: the caller's own, or all.
var administer = []string{scopeInputs, rewarder.ScopeAdmin}

func (h handlers) reads() []httpapi.Route {
	read := func(r *httpapi.Route) {
		httpapi.Read(prefix, service+".inspect")(r)
		r.Problems = []int{http.StatusNotFound, http.StatusConflict}
	}
	answers := func(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }
	return httpapi.Routes(
		read,
		httpapi.Route{
			Pattern: "policy/:policy",
			Handle:  as(ok, h.getPolicy),
			ID:      "getPolicy",
			Summary: "A policy and its signatures",
			Answers: answers(rewarder.Policy{}),
		},
		httpapi.Route{
			Pattern: "inputs",
			Handle:  paged(h.getInputs),
			AnyOf:   administer,
			ID:      "listUploads",
			Summary: "Uploads of usage: the caller's own, or all with rewarder.admin",
			Answers: answers(rewarder.UploadPage{}),
			Query:   httpapi.Params(after, limit),
		},
		httpapi.Route{
			Pattern: "inputs/:inputs",
			Handle:  as(ok, h.getInput),
			ID:      "getInputs",
			Summary: "Sealed usage",
			Answers: answers(rewarder.Input{}),
		},
		httpapi.Route{
			Pattern: "epochs",
			Handle:  named(h.getEpochs),
			ID:      "listEpochs",
			Summary: "Epochs and their runs, by id",
			Answers: answers(rewarder.EpochPage{}),
			Query:   httpapi.Params(after, limit),
		},
		httpapi.Route{
			Pattern: "epochs/:epoch",
			Handle:  as(runStatus, h.getEpoch),
			ID:      "getEpoch",
			Summary: "The run of an epoch, with its manifest once it is computed",
			Answers: append(answers(rewarder.Run{}), httpapi.Answers(http.StatusAccepted, rewarder.Run{})...),
			Query:   httpapi.Params(seen),
		},
		httpapi.Route{
			Pattern: "epochs/:epoch/allocations",
			Handle:  named(h.getAllocations),
			ID:      "listAllocations",
			Summary: "The allocations of a run, by actor",
			Answers: answers(rewarder.AllocationPage{}),
			Query:   httpapi.Params(after, limit, allocationOrder),
		},
		httpapi.Route{
			Pattern: "epochs/:epoch/proof",
			Handle:  as(ok, h.getProof),
			ID:      "proveAllocation",
			Summary: "Proof of the allocation of an actor, or of its absence",
			Answers: answers(rewarder.RewardProof{}),
			Query:   httpapi.Params(actor),
		},
		httpapi.Route{
			Pattern: "epochs/:epoch/parked",
			Handle:  numbered(h.getParked),
			ID:      "listParkedPayees",
			Summary: "Payees that the ledger has refused, by actor, including those that were paid later",
			Answers: answers(rewarder.ParkedPage{}),
			Query:   httpapi.Params(from, limit),
		},
		httpapi.Route{
			Pattern: "epochs/:epoch/settlement",
			Handle:  numbered(h.getSettlement),
			ID:      "getSettlement",
			Summary: "The progress of the payment, by transaction",
			Answers: answers(rewarder.Settlement{}),
			Query:   httpapi.Params(from, limit),
		},
	)
}

func (h handlers) writes() []httpapi.Route {
	write := func(r *httpapi.Route) {
		if r.Media != "" {
			r.Body, r.MaxBody = httpapi.StreamBody, maxPart
		}
		httpapi.Write(prefix, service)(r)
		r.Problems = []int{http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage}
	}
	both := func(first int, body any) []openapi.Answer {
		return append(httpapi.Answers(first, body), httpapi.Answers(http.StatusOK, body)...)
	}
	part := httpapi.Route{
		Method:   http.MethodPut,
		Pattern:  "inputs/:upload/parts/:part",
		Endpoint: "parts",
		Scope:    scopeInputs,
		Handle:   h.putPart(false),
		Media:    httpapi.TypeLines,
		In:       rewarderapi.UsageRow{},
		ID:       "putPart",
		Summary:  "Add rows to an upload: sorted by actor, content and metric, each once, over all parts",
		Doc: "Appends rows. A repetition of the last part with the same bytes has no effect; any other part " +
			"must be the next one.",
		Answers: httpapi.Answers(http.StatusOK, rewarder.Upload{}),
	}
	csv := part
	csv.Pattern, csv.Media, csv.Handle = part.Pattern+"/csv", "text/csv", h.putPart(true)
	csv.ID, csv.Summary = "putCsvPart", "The same as CSV, each part under the header actor,metric,qty[,content]"
	return httpapi.Routes(
		write,
		httpapi.Route{
			Method:   http.MethodPut,
			Pattern:  "policy/:policy",
			Endpoint: "policy",
			Handle:   as(putStatus, h.putPolicy),
			ID:       "putPolicy",
			Summary:  "Add a signed policy; its id is bound to these bytes for ever",
			Doc: "Stores a signed policy and binds its id to it for ever. A repetition changes nothing; another " +
				"policy under the id is refused as conflict.",
			In:      rewarderapi.PolicyPut{},
			Answers: both(http.StatusCreated, rewarder.Policy{}),
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "inputs",
			Endpoint: "inputs",
			Handle:   as(created, h.postInput),
			ID:       "openUpload",
			Summary:  "Open an upload of usage, or return the existing one",
			Doc: "Declares an upload. The same declaration by the same principal returns the same upload. Uploads " +
				"are bounded by rewarder.inputs.",
			In:      rewarder.OpenInput{},
			Answers: httpapi.Answers(http.StatusCreated, rewarder.Upload{}),
		},
		part,
		csv,
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "inputs/:upload/seal",
			Endpoint: "seal",
			Scope:    scopeInputs,
			Handle:   as(created, h.postSeal),
			ID:       "sealUpload",
			Summary:  "Seal an upload, with the current balance of the funding account",
			Doc: "Ends an upload and records the balance of the funding account. A repetition records the balance " +
				"anew.",
			Answers: httpapi.Answers(http.StatusCreated, rewarder.Input{}),
		},
		httpapi.Route{
			Method:   http.MethodDelete,
			Pattern:  "inputs/:inputs",
			Endpoint: "drop",
			AnyOf:    administer,
			Handle:   h.deleteInput,
			ID:       "dropUpload",
			Summary:  "Drop an upload that no run uses; it can be declared again",
			Doc: "Deletes an upload with its rows and what was sealed from it. It is refused as conflict if a run " +
				"uses it. A repetition is refused as not_found.",
			Answers: httpapi.AnswersNothing("the upload is dropped"),
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "epochs/:epoch/compute",
			Endpoint: "compute",
			Scope:    scopeRun,
			Handle:   as(runStatus, h.postCompute),
			ID:       "computeEpoch",
			Summary:  "Compute and pay an epoch, once",
			Doc: "Accepts a run of an epoch, which is computed and paid once; the answer does not wait for it. A " +
				"repetition returns the same run; other terms for the epoch are refused as conflict.",
			In:      rewarder.ComputeRequest{},
			Answers: both(http.StatusAccepted, rewarder.Run{}),
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "epochs/:epoch/emit",
			Endpoint: "emit",
			Scope:    scopeRun,
			Handle:   as(paymentStatus, h.postEmit),
			ID:       "resumePayment",
			Summary:  "Resume a paused payment, or pay parked payees",
			Doc: "Continues a paused payment under the same keys and retries parked payees, so that nobody is " +
				"paid twice. A run that is paid in full does not change.",
			Body:    httpapi.OptionJSON,
			In:      rewarderapi.EmitRequest{},
			Answers: both(http.StatusAccepted, rewarder.Run{}),
		},
	)
}

// filesDeadline is long enough for the files of a run with several million actors, and shorter than
// the timeout of clients.
const filesDeadline = 25 * time.Second

// more returns the routes for the list of policies and for the files of runs.
func (h handlers) more() []httpapi.Route {
	admin := []string{rewarder.ScopeAdmin} // the answer names a path on the node, and the call reads a whole run
	problems := []int{http.StatusNotFound, http.StatusConflict}
	all := []httpapi.Route{
		{Method: http.MethodGet, Pattern: "policy", Handle: named(h.getPolicies), Class: httpapi.ClassRead,
			Scope: service + ".inspect", Endpoint: httpapi.EndpointRead, Deadline: httpapi.DefaultDeadline,
			ID:      "listPolicies",
			Summary: "Policies and their signers, by id",
			Answers: httpapi.Answers(http.StatusOK, rewarder.PolicyPage{}),
			Query:   httpapi.Params(after, limit)},
		{Method: http.MethodGet, Pattern: "epochs/:epoch/files", Handle: as(ok, h.files(false)),
			Class: httpapi.ClassRead, AnyOf: admin, Endpoint: httpapi.EndpointRead, Deadline: filesDeadline,
			ID:      "listEpochFiles",
			Summary: "The files of a run and whether they are intact",
			Answers: httpapi.Answers(http.StatusOK, rewarder.RunFiles{})},
		{Method: http.MethodPost, Pattern: "epochs/:epoch/files", Handle: as(ok, h.files(true)),
			Class: httpapi.ClassWrite, AnyOf: admin, Endpoint: "files", Deadline: filesDeadline,
			ID:      "rewriteEpochFiles",
			Summary: "Rewrite the files of a run that are missing or differ",
			Doc: "Rewrites files of a run that are missing or differ; the data of the run does not change. A " +
				"repetition finds them intact. One call runs at a time.",
			Answers: httpapi.Answers(http.StatusOK, rewarder.RunFiles{})},
	}
	return httpapi.Routes(func(r *httpapi.Route) { r.Pattern, r.Problems = prefix+r.Pattern, problems }, all...)
}

// maxPart bounds a part of an upload in bytes.
const maxPart = 1 << 20
