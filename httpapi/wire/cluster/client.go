package cluster

import (
	"context"
	"net/http"

	"ronbox/httpapi/client"
)

// Prefix is the prefix of the cluster's routes.
const Prefix = "/admin/v1/cluster/"

// Client calls the routes of the cluster, and those of the node that every service has.
type Client struct{ *client.Client }

// NewClient returns a client of the cluster's routes over c.
func NewClient(c *client.Client) Client { return Client{c} }

// post sends body to a route and returns the answer.
func post[T any](ctx context.Context, c Client, route string, body any) (T, error) {
	return client.Ask[T](ctx, c.Client, client.Call{Method: http.MethodPost, Path: Prefix + route, Body: body})
}

// ClusterStatus reads the cluster as the node sees it, whether it leads or not.
func (c Client) ClusterStatus(ctx context.Context) (ClusterStatus, error) {
	return client.Ask[ClusterStatus](ctx, c.Client, client.Call{Path: Prefix + "status"})
}

// InitCluster makes the node the first member of a new cluster. The node restarts after its answer.
func (c Client) InitCluster(ctx context.Context, r InitRequest) (Inited, error) {
	return post[Inited](ctx, c, "init", r)
}

// MintClusterToken returns a token with which one node joins the cluster.
func (c Client) MintClusterToken(ctx context.Context, r JoinTokenRequest) (JoinToken, error) {
	return post[JoinToken](ctx, c, "tokens", r)
}

// LeaveCluster removes the node that answers from its cluster. The node restarts after its answer
// if it was the last member, and stops otherwise.
func (c Client) LeaveCluster(ctx context.Context, r LeaveRequest) (Removed, error) {
	return post[Removed](ctx, c, "leave", r)
}

// RemoveMember removes another node from the cluster.
func (c Client) RemoveMember(ctx context.Context, id string) (Removed, error) {
	return post[Removed](ctx, c, "remove", RemoveRequest{ID: id})
}

// RotateCertificate gives the node that answers a new key and a new certificate as a member.
func (c Client) RotateCertificate(ctx context.Context) (Rotated, error) {
	return post[Rotated](ctx, c, "rotate", RotateRequest{})
}

// TransferLeadership makes a voter the leader: the member id, or with "" the one that lacks the
// fewest entries.
func (c Client) TransferLeadership(ctx context.Context, id string) (Transferred, error) {
	return post[Transferred](ctx, c, "transfer", TransferRequest{ID: id})
}
