package httpapi

import (
	"net/http"
	"time"

	"ronbox/httpapi/auth"
)

// Names of path parameters; each has one kind of value.
const (
	paramVersion  = "v"
	paramEpoch    = "epoch"
	paramProposal = "id"
)

const (
	patternDrain = "/admin/v1/drain"

	defaultDeadline  = 5 * time.Second
	proposeDeadline  = 2 * time.Second
	commitDeadline   = 4 * time.Second
	snapshotDeadline = time.Hour

	endpointRead = "read"
)

// table is every route of the node.
func (s *Server) table() []Route {
	out := s.bypassRoutes()
	out = append(out, s.registryReads()...)
	out = append(out, s.registryWrites()...)
	return append(out, s.adminRoutes()...)
}

func (s *Server) bypassRoutes() []Route {
	row := func(pattern string, h handler, query ...string) Route {
		return Route{
			Method: http.MethodGet, Pattern: pattern, Service: serviceNode, Class: ClassBypass,
			Deadline: bypassDeadline, Query: query, handle: h,
		}
	}
	return []Route{
		row("/healthz", getHealthz),
		row("/readyz", s.getReadyz, "service", "plane"),
		row("/version", s.getVersionInfo),
		row("/metrics", s.getMetrics()),
	}
}

func (s *Server) registryReads() []Route {
	reg := s.d.Registry
	row := func(pattern string, h handler, query ...string) Route {
		return Route{
			Method: http.MethodGet, Pattern: "/registry/" + pattern, Service: serviceRegistry, Class: ClassRead,
			Deadline: defaultDeadline, Endpoint: endpointRead, Query: query, handle: h,
		}
	}
	stream := row("stream", s.getStream)
	stream.Class, stream.Deadline, stream.Endpoint = ClassStream, 0, "stream"
	return []Route{
		row("head", getHead(reg)),
		row(":v", getVersion(reg), "items"),
		row(":v/payload", getBytes(reg.PayloadBytes)),
		row(":v/entry", getBytes(reg.EntryBytes)),
		row(":v/status", getStatus(reg)),
		row("diff", getDiff(reg), "from", "to"),
		row("proposals", getProposals(reg), "cursor", "limit"),
		row("proposals/:id", getProposal(reg)),
		row("proposals/:id/payload", getProposalPayload(reg)),
		row("signers", getSigners(reg)),
		row("signers/:epoch", getSigners(reg)),
		stream,
	}
}

func (s *Server) registryWrites() []Route {
	reg := s.d.Registry
	row := func(method, pattern, verb string, d time.Duration, b Body, h handler) Route {
		return Route{
			Method: method, Pattern: "/registry/" + pattern, Service: serviceRegistry, Scope: "registry." + verb,
			Class: ClassWrite, Deadline: d, Body: b, Endpoint: verb, handle: h,
		}
	}
	withdraw := row(http.MethodDelete, "proposals/:id", "propose", proposeDeadline, NoBody, deleteProposal(reg))
	withdraw.Endpoint = "withdraw"
	return []Route{
		row(http.MethodPost, "proposals", "propose", proposeDeadline, SizedJSON, postProposal(reg)),
		row(http.MethodPost, "approvals/:id", "approve", proposeDeadline, SizedJSON, postApproval(reg)),
		row(http.MethodPost, "commit/:id", "commit", commitDeadline, NoBody, postCommit(reg)),
		withdraw,
	}
}

func (s *Server) adminRoutes() []Route {
	row := func(method, pattern string, b Body, h handler) Route {
		return Route{
			Method: method, Pattern: "/admin/v1/" + pattern, Service: serviceNode, Scope: auth.ScopeAdmin,
			Class: ClassAdmin, Deadline: defaultDeadline, Body: b, Endpoint: "admin", handle: h,
		}
	}
	snapshot := row(http.MethodPost, "db/snapshot", JSONBody, s.postSnapshot)
	snapshot.Deadline = snapshotDeadline
	genesis := row(http.MethodPost, "registry/genesis", JSONBody, postGenesis(s.d.Registry))
	genesis.Service, genesis.Deadline, genesis.Socket, genesis.Endpoint = serviceRegistry, commitDeadline, true, "genesis"
	return []Route{
		row(http.MethodGet, "status", NoBody, s.getNodeStatus),
		row(http.MethodPost, "drain", OptionJSON, s.postDrain),
		row(http.MethodGet, "db/info", NoBody, s.getDBInfo),
		snapshot,
		row(http.MethodPost, "db/accept-restore", NoBody, s.postAcceptRestore),
		row(http.MethodPost, "tokens", JSONBody, s.postToken),
		genesis,
	}
}
