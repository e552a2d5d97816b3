package cluster

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// Engine is the interface of the routes to the cluster. An operation that needs another state of
// the node or of the cluster returns a *ConflictError, and one for an unknown member
// httpapi.ErrNoSuch.
type Engine interface {
	// Status may ask the leader, for a moment.
	Status(ctx context.Context) (clusterapi.ClusterStatus, error)
	// Init returns once the node will be a member after its restart. The restart begins after the
	// answer.
	Init(
		ctx context.Context, by engines.Actor, corrID string, r clusterapi.InitRequest,
	) (clusterapi.Inited, error)
	// Token is called on the leader.
	Token(
		ctx context.Context, by engines.Actor, corrID string, r clusterapi.JoinTokenRequest,
	) (clusterapi.JoinToken, error)
	// Leave returns once this node is no longer a member.
	Leave(
		ctx context.Context, by engines.Actor, corrID string, r clusterapi.LeaveRequest,
	) (clusterapi.Removed, error)
	// Remove is called on the leader.
	Remove(ctx context.Context, by engines.Actor, corrID, id string) (clusterapi.Removed, error)
	// Rotate gives this node a new certificate, whether it leads or not.
	Rotate(ctx context.Context, by engines.Actor, corrID string) (clusterapi.Rotated, error)
	// Transfer is called on the leader. It returns a *StayedError if the leader leads on.
	Transfer(ctx context.Context, by engines.Actor, corrID, id string) (clusterapi.Transferred, error)
}

// ConflictError is returned if an operation is not possible in the current state: status 409.
// Reason is for people: why, and what to do next. It contains no part of the request.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// StayedError is returned if a transfer of the leadership has failed, and may succeed later: status
// 503. Reason is for people, and contains no part of the request.
type StayedError struct{ Reason string }

func (e *StayedError) Error() string { return e.Reason }

// Names of the service and of its scopes. The scope node.admin implies both.
const (
	service    = "cluster"
	scopeRead  = "cluster.read"
	scopeAdmin = "cluster.admin"
)

// changeDeadline is the deadline of operations, which wait for a quorum or copy files.
const changeDeadline = 30 * time.Second

// handlers serve the routes of the cluster.
type handlers struct{ engine Engine }

// New returns the cluster's part of the surface.
func New(e Engine) httpapi.Service {
	h := handlers{e}
	return httpapi.Service{
		Name: service,
		Errors: []httpapi.Map{
			{Is: httpapi.IsA[*ConflictError], Reason: httpapi.ReasonConflict, Text: httpapi.Said},
			{Is: httpapi.IsA[*StayedError], Reason: httpapi.ReasonBusy, Cause: clusterapi.CauseStays,
				Text: httpapi.Said},
		},
		Refusals: clusterapi.Refusals,
		Routes:   h.routes(),
	}
}

func (h handlers) routes() []httpapi.Route {
	ok := func(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }
	return append(
		httpapi.Routes(
			change,
			httpapi.Route{
				Pattern: "init", Handle: h.postInit, Local: true,
				ID: "initCluster", Summary: "Make the node the first member of a new cluster",
				Doc: "Turns the node into a member of a new cluster; it starts again in its new role. A repetition " +
					"is refused as conflict.",
				In: clusterapi.InitRequest{}, Answers: ok(clusterapi.Inited{}),
			},
			httpapi.Route{
				Pattern: "tokens", Handle: h.postToken,
				ID: "mintClusterToken", Summary: "Mint a token with which one node joins",
				Doc: "Makes a token that admits one node for a limited time. It is shown once, and a repetition " +
					"makes another token.",
				In: clusterapi.JoinTokenRequest{}, Answers: ok(clusterapi.JoinToken{}),
			},
			httpapi.Route{
				Pattern: "leave", Handle: h.postLeave, Local: true,
				ID: "leaveCluster", Summary: "Remove the node that answers from its cluster",
				Doc: "Removes this node from the configuration of its cluster; it then stops. A repetition " +
					"is refused, because the node is no member.",
				In: clusterapi.LeaveRequest{}, Answers: ok(clusterapi.Removed{}),
			},
			httpapi.Route{
				Pattern: "remove", Handle: h.postRemove,
				ID: "removeMember", Summary: "Remove another node from the cluster",
				Doc: "Removes a member for good: it must join again as a new one. A repetition is refused as " +
					"not_found.",
				In: clusterapi.RemoveRequest{}, Answers: ok(clusterapi.Removed{}),
				Problems: []int{http.StatusNotFound},
			},
			httpapi.Route{
				Pattern: "rotate", Handle: h.postRotate, Local: true, Body: httpapi.OptionJSON,
				ID: "rotateCertificate", Summary: "Renew the key and the certificate of the node that answers",
				Doc: "Makes a new key and certificate for the peer port of this node. A repetition makes another " +
					"pair.",
				In: clusterapi.RotateRequest{}, Answers: ok(clusterapi.Rotated{}),
			},
			httpapi.Route{
				Pattern: "transfer", Handle: h.postTransfer,
				ID: "transferLeadership", Summary: "Make another voter the leader",
				Doc: "Asks another voter to lead; writes pause for a moment. If the leader stays, nothing has " +
					"changed and the request may be repeated.",
				In: clusterapi.TransferRequest{}, Answers: ok(clusterapi.Transferred{}),
			},
		),
		httpapi.Route{
			Method: http.MethodGet, Pattern: clusterapi.Prefix + "status", Handle: h.getStatus,
			Scope: scopeRead, Class: httpapi.ClassAdmin, Admin: true, Local: true, Endpoint: "admin",
			Deadline: httpapi.DefaultDeadline,
			ID:       "getClusterStatus", Summary: "Members of the cluster, as the node sees them",
			Answers: ok(clusterapi.ClusterStatus{}), Problems: []int{http.StatusConflict},
		},
	)
}

// change sets the fields that the operations have in common.
func change(r *httpapi.Route) {
	r.Method, r.Scope, r.Deadline = http.MethodPost, scopeAdmin, changeDeadline
	httpapi.Admin(clusterapi.Prefix)(r)
	r.Problems = append(r.Problems, http.StatusConflict, http.StatusInsufficientStorage)
}

// getStatus serves GET /admin/v1/cluster/status.
func (h handlers) getStatus(c *httpapi.Request) error {
	status, err := h.engine.Status(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, status)
}

// postInit serves POST /admin/v1/cluster/init.
func (h handlers) postInit(c *httpapi.Request) error {
	var in clusterapi.InitRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.Advertise != "" && !isAddress(in.Advertise) {
		return httpapi.BadBody("advertise", "must be a host and a port, as in node1.example.org:7946")
	}
	return respond(c, in, h.engine.Init)
}

// isAddress reports whether s is a host and a port other than 0.
func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// postToken serves POST /admin/v1/cluster/tokens.
func (h handlers) postToken(c *httpapi.Request) error {
	var in clusterapi.JoinTokenRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	return respond(c, in, h.engine.Token)
}

// postLeave serves POST /admin/v1/cluster/leave.
func (h handlers) postLeave(c *httpapi.Request) error {
	var in clusterapi.LeaveRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	return respond(c, in, h.engine.Leave)
}

// postRemove serves POST /admin/v1/cluster/remove.
func (h handlers) postRemove(c *httpapi.Request) error {
	var in clusterapi.RemoveRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if !httpapi.IsULID(in.ID) {
		return httpapi.BadBody("id", "must be the id of a member, as in the status")
	}
	return respond(c, in.ID, h.engine.Remove)
}

// postRotate serves POST /admin/v1/cluster/rotate.
func (h handlers) postRotate(c *httpapi.Request) error {
	if body := c.Body(); len(body) > 0 {
		if err := httpapi.Decode(body, new(clusterapi.RotateRequest)); err != nil {
			return err
		}
	}
	out, err := h.engine.Rotate(c.Context(), c.Actor(), c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, out)
}

// postTransfer serves POST /admin/v1/cluster/transfer.
func (h handlers) postTransfer(c *httpapi.Request) error {
	var in clusterapi.TransferRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.ID != "" && !httpapi.IsULID(in.ID) {
		return httpapi.BadBody("id", "must be the id of a member, as in the status, or empty")
	}
	return respond(c, in.ID, h.engine.Transfer)
}

// respond performs an operation for the caller and answers with its result.
func respond[In, Out any](
	c *httpapi.Request,
	in In,
	do func(ctx context.Context, by engines.Actor, corrID string, in In) (Out, error),
) error {
	out, err := do(c.Context(), c.Actor(), c.CorrID(), in)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, out)
}
