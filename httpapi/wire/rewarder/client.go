package rewarder

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines/rewarder/document"
	"ronbox/httpapi/client"
)

const prefix = "/rewarder/"

// Client calls the routes of the rewarder, and the common routes of the node. Every call may be
// repeated: repeated writes have no further effect.
type Client struct{ *client.Client }

// NewClient returns a Client that uses c.
func NewClient(c *client.Client) Client { return Client{c} }

func epochPath(epoch, what string) string { return prefix + "epochs/" + url.PathEscape(epoch) + what }

// PutPolicy adds a policy with its signatures.
func (c Client) PutPolicy(ctx context.Context, id string, p PolicyPut) (document.Policy, error) {
	return client.Ask[document.Policy](ctx, c.Client,
		client.Call{Method: http.MethodPut, Path: prefix + "policy/" + url.PathEscape(id), Body: p})
}

// Policy reads a policy.
func (c Client) Policy(ctx context.Context, id string) (document.Policy, error) {
	return client.Ask[document.Policy](ctx, c.Client, client.Call{Path: prefix + "policy/" + url.PathEscape(id)})
}

// Open opens an upload, or returns the one that was opened with the same declaration.
func (c Client) Open(ctx context.Context, o document.OpenInput) (document.Upload, error) {
	return client.Ask[document.Upload](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: prefix + "inputs", Body: o})
}

// PutPart adds the rows of part n: lines of NDJSON of at most 1 MiB in all.
func (c Client) PutPart(ctx context.Context, upload b3.Digest, n uint32, rows []byte) (document.Upload, error) {
	return client.Ask[document.Upload](ctx, c.Client, client.Call{
		Method: http.MethodPut,
		Path:   prefix + "inputs/" + upload.String() + "/parts/" + strconv.FormatUint(uint64(n), 10),
		Body:   rows,
		Header: http.Header{"Content-Type": {"application/x-ndjson"}},
	})
}

// Seal seals an upload.
func (c Client) Seal(ctx context.Context, upload b3.Digest) (document.Input, error) {
	return client.Ask[document.Input](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: prefix + "inputs/" + upload.String() + "/seal"})
}

// Uploads reads a page of the uploads that the caller may administer.
func (c Client) Uploads(ctx context.Context, after string, limit int) (document.UploadPage, error) {
	return client.Ask[document.UploadPage](ctx, c.Client, client.Call{
		Path: prefix + "inputs", Query: client.Query{}.Text("after", after).Text("limit", strconv.Itoa(limit)),
	})
}

// DropUpload deletes an upload that no run uses. It may be repeated until it succeeds; ErrNotFound
// then means that it is gone.
func (c Client) DropUpload(ctx context.Context, upload string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: prefix + "inputs/" + url.PathEscape(upload)})
	return err
}

// Compute requests that an epoch is computed and paid. It does not wait for the result.
func (c Client) Compute(ctx context.Context, epoch string, r document.ComputeRequest) (document.Run, error) {
	return client.Ask[document.Run](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: epochPath(epoch, "/compute"), Body: r})
}

// Epoch reads the run of an epoch.
func (c Client) Epoch(ctx context.Context, epoch string) (document.Run, error) {
	return client.Ask[document.Run](ctx, c.Client, client.Call{Path: epochPath(epoch, "")})
}

// Follow returns the run of an epoch when its mark differs from seen, or after 3 s.
func (c Client) Follow(ctx context.Context, epoch, seen string) (document.Run, error) {
	return client.Ask[document.Run](ctx, c.Client,
		client.Call{Path: epochPath(epoch, ""), Query: client.Query{}.Text("seen", seen)})
}

// Proof returns the proof of the allocation of an actor, as the node sent it. Package rverify
// verifies it.
func (c Client) Proof(ctx context.Context, epoch, actor string) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client,
		client.Call{Path: epochPath(epoch, "/proof"), Query: client.Query{}.Text("actor", actor)})
}

// Parked returns a page of the payees of a run that were parked.
func (c Client) Parked(ctx context.Context, epoch string, from uint64, limit int) (document.ParkedPage, error) {
	return client.Ask[document.ParkedPage](ctx, c.Client, client.Call{
		Path:  epochPath(epoch, "/parked"),
		Query: client.Query{}.Text("from", strconv.FormatUint(from, 10)).Text("limit", strconv.Itoa(limit)),
	})
}

// Emit resumes a paused payment, or pays parked payees. With skip, payees that the ledger refuses
// are parked from now on.
func (c Client) Emit(ctx context.Context, epoch string, skip bool) (document.Run, error) {
	return client.Ask[document.Run](ctx, c.Client, client.Call{
		Method: http.MethodPost, Path: epochPath(epoch, "/emit"), Body: EmitRequest{SkipRefused: skip},
	})
}

// Policies reads a page of policies.
func (c Client) Policies(ctx context.Context, after string) (document.PolicyPage, error) {
	call := client.Call{Path: prefix + "policy", Query: client.Query{}.Text("after", after)}
	return client.Ask[document.PolicyPage](ctx, c.Client, call)
}

// Files compares the files of a run with the node's rows. With rebuild, files that are missing or
// differ are rewritten.
func (c Client) Files(ctx context.Context, epoch string, rebuild bool) (document.RunFiles, error) {
	call := client.Call{Path: epochPath(epoch, "/files")}
	if rebuild {
		call.Method = http.MethodPost
	}
	return client.Ask[document.RunFiles](ctx, c.Client, call)
}

// Largest reads the limit largest allocations of an epoch, the largest first.
func (c Client) Largest(ctx context.Context, epoch string, limit int) (document.AllocationPage, error) {
	return client.Ask[document.AllocationPage](ctx, c.Client, client.Call{
		Path:  "/rewarder/epochs/" + url.PathEscape(epoch) + "/allocations",
		Query: client.Query{"order": {"amount"}}.Number("limit", uint64(limit)),
	})
}

// Epochs reads a page of epochs, in order, after the one named.
func (c Client) Epochs(ctx context.Context, after string, limit int) (document.EpochPage, error) {
	return client.Ask[document.EpochPage](ctx, c.Client, client.Call{
		Path:  prefix + "epochs",
		Query: client.Query{}.Text("after", after).Text("limit", strconv.Itoa(limit)),
	})
}
