package index

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"ronbox/httpapi/client"
)

// Client calls the routes of the index.
type Client struct{ *client.Client }

// NewClient gives the calls of the index over c.
func NewClient(c *client.Client) Client { return Client{c} }

// Resolve asks what a key stands for; fresh asks the peers although the answer is known.
func (c Client) Resolve(ctx context.Context, key string, fresh bool) (Resolved, error) {
	k := client.Call{Path: "/resolve/" + url.PathEscape(key)}
	if fresh {
		k.Query = client.Query{"fresh": {"1"}}
	}
	return client.Ask[Resolved](ctx, c.Client, k)
}

// ProvidersQuery says which providers are asked for.
type ProvidersQuery struct {
	CID    string
	Region string // those near it come first; "": anywhere
	Limit  int    // 0: the node's own
	Fresh  bool   // ask the peers although the answer is known
}

// Providers asks who serves a content.
func (c Client) Providers(ctx context.Context, q ProvidersQuery) (Providers, error) {
	k := client.Call{
		Path:  "/providers/" + url.PathEscape(q.CID),
		Query: client.Query{}.Text("region", q.Region).Number("limit", uint64(max(q.Limit, 0))),
	}
	if q.Fresh {
		k.Query.Text("fresh", "1")
	}
	return client.Ask[Providers](ctx, c.Client, k)
}

// Put makes a key stand for a manifest. Idempotent.
func (c Client) Put(ctx context.Context, key, manifest string) (NameRow, error) {
	return client.Ask[NameRow](ctx, c.Client, client.Call{Method: http.MethodPut, Path: namePath(key), Body: NamePut{manifest}})
}

// Delete removes a key. One that is not there is refused with not_found.
func (c Client) Delete(ctx context.Context, key string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: namePath(key)})
	return err
}

// Forget removes all that the node knows of a key itself, a damaged row too.
func (c Client) Forget(ctx context.Context, key string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: namePath(key), Query: client.Query{"forget": {"1"}}})
	return err
}

// Name reads a key of this node's own table.
func (c Client) Name(ctx context.Context, key string) (NameRow, error) {
	return client.Ask[NameRow](ctx, c.Client, client.Call{Path: namePath(key)})
}

// Names reads one page of the table: keys that begin with prefix, behind after; limit 0 is the node's own page size.
func (c Client) Names(ctx context.Context, prefix, after string, limit int) (NameList, error) {
	q := client.Query{}.Text("prefix", prefix).Text("after", after).Number("limit", uint64(max(limit, 0)))
	return client.Ask[NameList](ctx, c.Client, client.Call{Path: "/index/names", Query: q})
}

// Announce tells who serves what. Idempotent.
func (c Client) Announce(ctx context.Context, records []Announcement) (AnnounceResults, error) {
	return client.Ask[AnnounceResults](ctx, c.Client, client.Call{Method: http.MethodPost, Path: "/index/providers", Body: Announce{records}})
}

// Withdraw takes back that this node serves a content.
func (c Client) Withdraw(ctx context.Context, cid string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: "/index/providers/" + url.PathEscape(cid)})
	return err
}

// Reindex has keys looked up anew, in the background.
func (c Client) Reindex(ctx context.Context, keys []string) (Reindexed, error) {
	return client.Ask[Reindexed](ctx, c.Client, client.Call{Method: http.MethodPost, Path: "/index/reindex", Body: Reindex{keys}})
}

// Peers reads whom the node asks, and how they do.
func (c Client) Peers(ctx context.Context) (PeerList, error) {
	return client.Ask[PeerList](ctx, c.Client, client.Call{Path: "/index/peers"})
}

// Identity reads the node's public key.
func (c Client) Identity(ctx context.Context) (NodeIdentity, error) {
	return client.Ask[NodeIdentity](ctx, c.Client, client.Call{Path: "/index/identity"})
}

func namePath(key string) string { return "/index/names/" + url.PathEscape(key) }

// Expires is when the record of a provider ends.
func (p Provider) Expires() time.Time { return time.UnixMilli(p.ExpiresMS) }
