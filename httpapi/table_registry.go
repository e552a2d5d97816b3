package httpapi

import (
	"net/http"
	"time"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

func (s *Server) registryReads() []Route {
	reg := s.d.Registry
	row := func(pattern, summary string, h handler, answer ...openapi.Answer) Route {
		return Route{
			Method: http.MethodGet, Pattern: "/registry/" + pattern, Service: serviceRegistry, Class: ClassRead,
			Deadline: defaultDeadline, Endpoint: endpointRead, Headers: ifNoneMatch(), Summary: summary, Answers: answer,
			Problems: []int{http.StatusNotFound, http.StatusGone}, handle: h,
		}
	}
	version := row(":v", "One version with its items and signatures", getVersion(reg), tagged(wire.Version{})...)
	version.Query = []openapi.Param{{Name: "items", Doc: "0 leaves the items out", Enum: []string{"0", "1"}}}
	diff := row("diff", "What changed between two versions", getDiff(reg), answers(http.StatusOK, wire.Diff{}))
	diff.Query = []openapi.Param{
		{Name: "from", Doc: "the older version", Sample: uint64(0), Min: 1, Max: maxVersion, Required: true},
		{Name: "to", Doc: "the newer version", Sample: uint64(0), Min: 1, Max: maxVersion, Required: true},
	}
	list := row("proposals", "Live proposals, oldest first", getProposals(reg), answers(http.StatusOK, wire.ProposalList{}))
	list.Query = []openapi.Param{
		{Name: "cursor", Doc: "next of the page before"},
		{Name: "limit", Doc: "rows of a page", Sample: uint64(0), Min: 1, Max: maxProposalPage},
	}
	return []Route{
		row("head", "The newest version", getHead(reg), tagged(wire.Head{})...),
		version,
		row(":v/payload", "The signed bytes of a version", getBytes(reg.PayloadBytes), tagged(nil)...),
		row(":v/entry", "The log entry of a version", getBytes(reg.EntryBytes), tagged(nil)...),
		row(":v/status", "What may change about a version", getStatus(reg), answers(http.StatusOK, wire.VersionStatus{})),
		diff,
		list,
		row("proposals/:id", "One proposal", getProposal(reg), answers(http.StatusOK, wire.Proposal{})),
		row("proposals/:id/payload", "The bytes to sign", getProposalPayload(reg), tagged(nil)...),
		row("signers", "The signer set in force", getSigners(reg), answers(http.StatusOK, wire.Signers{})),
		row("signers/:epoch", "The signer set of an epoch", getSigners(reg), answers(http.StatusOK, wire.Signers{})),
		s.registryStream(),
	}
}

func (s *Server) registryStream() Route {
	return Route{
		Method: http.MethodGet, Pattern: "/registry/stream", Service: serviceRegistry, Class: ClassStream, Endpoint: "stream",
		Headers: []openapi.Param{lastEvent("version")}, Summary: "Versions as they are committed",
		Answers: []openapi.Answer{{Status: http.StatusOK, Type: typeEvents, Events: []openapi.Event{
			{Name: wire.EventHello, Doc: "the first frame", Body: wire.Hello{}},
			{Name: wire.EventUpdate, Doc: "a version was committed", Body: wire.Update{}},
			{Name: wire.EventLagged, Doc: "versions that are not told; reconcile with diff", Body: wire.Lagged{}},
			{Name: wire.EventShutdown, Doc: "the node stops", Body: struct{}{}},
		}}},
		handle: s.getStream,
	}
}

func lastEvent(what string) openapi.Param {
	return openapi.Param{Name: "Last-Event-ID", Doc: "the last " + what + " that the caller has seen; what came after is told first"}
}

func (s *Server) registryWrites() []Route {
	reg := s.d.Registry
	row := func(pattern, verb, summary string, d time.Duration, in any, h handler, answer ...openapi.Answer) Route {
		r := Route{
			Method: http.MethodPost, Pattern: "/registry/" + pattern, Service: serviceRegistry, Scope: "registry." + verb,
			Class: ClassWrite, Deadline: d, Endpoint: verb, Summary: summary, In: in, Answers: answer, Problems: writeProblems(), handle: h,
		}
		if in != nil {
			r.Body = SizedJSON
		}
		return r
	}
	withdraw := row("proposals/:id", "propose", "Take a proposal back", proposeDeadline, nil, deleteProposal(reg),
		answersNothing("it is withdrawn"))
	withdraw.Method, withdraw.Endpoint = http.MethodDelete, "withdraw"
	return []Route{
		row("proposals", "propose", "Propose the next version", proposeDeadline, wire.Propose{}, postProposal(reg),
			answers(http.StatusAccepted, wire.Proposed{})),
		row("approvals/:id", "approve", "Add a signature to a proposal", proposeDeadline, wire.Approval{}, postApproval(reg),
			answers(http.StatusOK, wire.Approved{})),
		row("commit/:id", "commit", "Make a proposal the next version", commitDeadline, nil, postCommit(reg), committed()...),
		withdraw,
	}
}

// committed answers who made the version, and who asks again.
func committed() []openapi.Answer {
	again := answers(http.StatusOK, wire.Committed{})
	again.Doc = "an earlier request has made it"
	again.Headers = []openapi.Param{{Name: replayedHeader, Doc: "true", Enum: []string{"true"}}}
	return []openapi.Answer{answers(http.StatusCreated, wire.Committed{}), again}
}

// writeProblems are what the registry refuses by its rules, or for now.
func writeProblems() []int {
	return []int{
		http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity, http.StatusInsufficientStorage,
	}
}
