package edge

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/fleet/usage"
	"ronbox/httpapi/client"
)

// Client calls the routes of the edge.
type Client struct{ *client.Client }

// NewClient returns a client of the edge that sends its calls through c.
func NewClient(c *client.Client) Client { return Client{c} }

// Catalog returns the packs.
func (c Client) Catalog(ctx context.Context) (Catalog, error) {
	return client.Ask[Catalog](ctx, c.Client, client.Call{Path: "/edge/catalog"})
}

// UsagePath returns the path of the signed statement of an epoch.
func UsagePath(epoch uint64) string { return "/edge/usage/" + strconv.FormatUint(epoch, 10) }

// Usage returns the signed statement of an epoch. It does not verify it.
func (c Client) Usage(ctx context.Context, epoch uint64) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: UsagePath(epoch), Limit: usage.MaxSize})
}

// EdgeBytes returns an asset, a tile, a page or a file of a page, by its escaped path below /edge/.
func (c Client) EdgeBytes(ctx context.Context, path string) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: "/edge/" + path, Limit: 64 << 20})
}

// Fill fetches a URL on the node and waits for it.
func (c Client) Fill(ctx context.Context, f Fill) (Object, error) {
	return client.Ask[Object](ctx, c.Client, client.Call{Method: http.MethodPost, Path: "/edge/fills", Body: f})
}

// ObjectPut describes an object to put.
type ObjectPut struct {
	Body     io.Reader
	Size     int64
	Type     string    // media type; "": bytes
	Expect   b3.Digest // the digest that the bytes must have; zero accepts any
	Announce bool      // announce the object to other nodes
}

// PutObject stores and pins an object on the node. It is idempotent. After a failure Body has been
// read in part.
func (c Client) PutObject(ctx context.Context, o ObjectPut) (Object, error) {
	q := client.Query{}.Text("type", o.Type)
	if !o.Expect.IsZero() {
		q = q.Text("b3", o.Expect.String())
	}
	if !o.Announce {
		q = q.Text("announce", "0")
	}
	return client.Ask[Object](ctx, c.Client, client.Call{
		Method: http.MethodPut, Path: "/edge/objects", Query: q, Stream: o.Body, Length: o.Size,
		Header: http.Header{"Content-Type": {"application/octet-stream"}},
	})
}

// EdgeKeys returns a page of at most limit stored URLs that begin with prefix and follow after, or
// only of pinned ones if pinned is set.
func (c Client) EdgeKeys(ctx context.Context, prefix, after string, limit int, pinned bool) (StoredList, error) {
	q := client.Query{}.Text("prefix", prefix).Text("after", after).Text("limit", strconv.Itoa(limit))
	if pinned {
		q = q.Text("pinned", "1")
	}
	return client.Ask[StoredList](ctx, c.Client, client.Call{Path: "/edge/keys", Query: q})
}

// EdgeStore returns how full the content store is.
func (c Client) EdgeStore(ctx context.Context) (Store, error) {
	return client.Ask[Store](ctx, c.Client, client.Call{Path: "/edge/store"})
}

// EdgeKeep pins, unpins or removes URLs.
func (c Client) EdgeKeep(ctx context.Context, do asset.Action, urls []string) (Kept, error) {
	return client.Ask[Kept](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/edge/keys/" + string(do), Body: Keep{urls}})
}

// Rescan scans the folder of packs on the node.
func (c Client) Rescan(ctx context.Context) (Catalog, error) {
	return client.Ask[Catalog](ctx, c.Client, client.Call{Method: http.MethodPost, Path: "/admin/v1/edge/rescan"})
}

// PackPut describes a pack to put.
type PackPut struct {
	File   string // ID.pmtiles or ID.mbtiles
	Body   io.Reader
	Size   int64
	Expect b3.Digest // the digest that the bytes must have; zero accepts any
}

// PutPack sends a pack to the node and returns it as the node lists it. It is idempotent. After a
// failure Body has been read in part.
func (c Client) PutPack(ctx context.Context, p PackPut) (Pack, error) {
	q := client.Query{}
	if !p.Expect.IsZero() {
		q = q.Text("b3", p.Expect.String())
	}
	return client.Ask[Pack](ctx, c.Client, client.Call{
		Method: http.MethodPut, Path: packPath(p.File), Query: q, Stream: p.Body, Length: p.Size,
		Header: http.Header{"Content-Type": {"application/octet-stream"}},
	})
}

// RemovePack removes the file of a pack from the node.
func (c Client) RemovePack(ctx context.Context, file string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: packPath(file)})
	return err
}

// Extracts returns the extracts of the node.
func (c Client) Extracts(ctx context.Context) (ExtractList, error) {
	return client.Ask[ExtractList](ctx, c.Client, client.Call{Path: extractsPath})
}

// Extract plans an extract, which the node then reads. It is idempotent while the node does.
func (c Client) Extract(ctx context.Context, s ExtractStart) (Extract, error) {
	return client.Ask[Extract](ctx, c.Client, client.Call{Method: http.MethodPost, Path: extractsPath, Body: s})
}

// RemoveExtract removes an extract, and what was read of it.
func (c Client) RemoveExtract(ctx context.Context, pack string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: extractsPath + "/" + url.PathEscape(pack)})
	return err
}

const extractsPath = "/edge/extracts"

func packPath(file string) string { return "/edge/packs/" + url.PathEscape(file) }

// Verify reads all stored content on the node and returns the findings. It calls progress, if not
// nil, during the run, which takes at most an hour; the timeout of the client does not apply.
// Damage is not an error.
func (c Client) Verify(ctx context.Context, v Verify,
	progress func(done, total int64)) (found []Finding, sum Verified, err error) {
	k := client.Call{Method: http.MethodPost, Path: "/admin/v1/edge/verify", Body: v}
	err = client.ReadLines(ctx, c.Client, k, func(l VerifyLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Sum != nil:
			sum = *l.Sum
			return true, nil
		case l.Found != nil:
			found = append(found, *l.Found)
		case progress != nil:
			progress(l.Done, l.Total)
		}
		return false, nil
	})
	return found, sum, err
}

// EdgePlacements returns what the registry places on the node.
func (c Client) EdgePlacements(ctx context.Context) (PlacementList, error) {
	return client.Ask[PlacementList](ctx, c.Client, client.Call{Path: "/edge/placements"})
}
