package rewarder

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder"
	"ronbox/httpapi/client"
)

// Client calls the routes of the rewarder, and those of the node that every service has. Every call may be repeated: what was done is not done twice.
type Client struct{ *client.Client }

// NewClient gives the calls of the rewarder over c.
func NewClient(c *client.Client) Client { return Client{c} }

func epochPath(epoch, what string) string { return prefix + "epochs/" + url.PathEscape(epoch) + what }

// PutPolicy adds a policy with its signatures.
func (c Client) PutPolicy(ctx context.Context, id string, p PolicyPut) (rewarder.Policy, error) {
	return client.Ask[rewarder.Policy](ctx, c.Client, client.Call{Method: http.MethodPut, Path: prefix + "policy/" + url.PathEscape(id), Body: p})
}

// Policy reads a policy.
func (c Client) Policy(ctx context.Context, id string) (rewarder.Policy, error) {
	return client.Ask[rewarder.Policy](ctx, c.Client, client.Call{Path: prefix + "policy/" + url.PathEscape(id)})
}

// Open opens an upload, or finds the one that was opened so before.
func (c Client) Open(ctx context.Context, o rewarder.OpenInput) (rewarder.Upload, error) {
	return client.Ask[rewarder.Upload](ctx, c.Client, client.Call{Method: http.MethodPost, Path: prefix + "inputs", Body: o})
}

// PutPart adds the rows of part n, lines of NDJSON of at most 1 MiB.
func (c Client) PutPart(ctx context.Context, upload b3.Digest, n uint32, rows []byte) (rewarder.Upload, error) {
	return client.Ask[rewarder.Upload](ctx, c.Client, client.Call{
		Method: http.MethodPut, Path: prefix + "inputs/" + upload.String() + "/parts/" + strconv.FormatUint(uint64(n), 10), Body: rows,
		Header: http.Header{"Content-Type": {"application/x-ndjson"}},
	})
}

// Seal ends an upload.
func (c Client) Seal(ctx context.Context, upload b3.Digest) (rewarder.Input, error) {
	return client.Ask[rewarder.Input](ctx, c.Client, client.Call{Method: http.MethodPost, Path: prefix + "inputs/" + upload.String() + "/seal"})
}

// Uploads reads a page of the uploads that the caller may administer.
func (c Client) Uploads(ctx context.Context, after string, limit int) (rewarder.UploadPage, error) {
	return client.Ask[rewarder.UploadPage](ctx, c.Client, client.Call{
		Path: prefix + "inputs", Query: client.Query{}.Text("after", after).Text("limit", strconv.Itoa(limit)),
	})
}

// DropUpload deletes an upload that no run uses. It may be repeated until it succeeds; ErrNotFound then means that it is gone.
func (c Client) DropUpload(ctx context.Context, upload string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: prefix + "inputs/" + url.PathEscape(upload)})
	return err
}

// Compute has an epoch computed and paid. It answers at once.
func (c Client) Compute(ctx context.Context, epoch string, r rewarder.ComputeRequest) (rewarder.Run, error) {
	return client.Ask[rewarder.Run](ctx, c.Client, client.Call{Method: http.MethodPost, Path: epochPath(epoch, "/compute"), Body: r})
}

// Epoch reads the run of an epoch.
func (c Client) Epoch(ctx context.Context, epoch string) (rewarder.Run, error) {
	return client.Ask[rewarder.Run](ctx, c.Client, client.Call{Path: epochPath(epoch, "")})
}

// Proof reads the proof of what an actor gets. The bytes are as they were given: rverify checks them.
func (c Client) Proof(ctx context.Context, epoch, actor string) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: epochPath(epoch, "/proof"), Query: client.Query{}.Text("actor", actor)})
}

// Emit goes on paying a run whose payment was paused.
func (c Client) Emit(ctx context.Context, epoch string) (rewarder.Run, error) {
	return client.Ask[rewarder.Run](ctx, c.Client, client.Call{Method: http.MethodPost, Path: epochPath(epoch, "/emit")})
}
