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

// NewClient returns a Client that uses c.
func NewClient(c *client.Client) Client { return Client{c} }

// Resolve returns the manifest of a key. With fresh, the node asks its peers even if it knows the
// answer.
func (c Client) Resolve(ctx context.Context, key string, fresh bool) (Resolved, error) {
	k := client.Call{Path: "/resolve/" + url.PathEscape(key)}
	if fresh {
		k.Query = client.Query{"fresh": {"1"}}
	}
	return client.Ask[Resolved](ctx, c.Client, k)
}

// ProvidersQuery selects the providers of a content id.
type ProvidersQuery struct {
	CID    string
	Region string // providers near it come first; "": no preference
	Limit  int    // 0: the default of the node
	Fresh  bool   // ask the peers even if the answer is known
}

// Providers returns the providers of a content id.
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

// Put sets the manifest of a key. It is idempotent.
func (c Client) Put(ctx context.Context, key, manifest string) (NameRow, error) {
	return client.Ask[NameRow](ctx, c.Client,
		client.Call{Method: http.MethodPut, Path: namePath(key), Body: NamePut{manifest}})
}

// Delete removes a key. The node answers not_found if the key does not exist.
func (c Client) Delete(ctx context.Context, key string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: namePath(key)})
	return err
}

// Forget removes the row of a key from the node's file, even if it is damaged or a tombstone.
func (c Client) Forget(ctx context.Context, key string) error {
	call := client.Call{Method: http.MethodDelete, Path: namePath(key), Query: client.Query{"forget": {"1"}}}
	_, err := c.Do(ctx, call)
	return err
}

// Name returns a key of the node's own table.
func (c Client) Name(ctx context.Context, key string) (NameRow, error) {
	return client.Ask[NameRow](ctx, c.Client, client.Call{Path: namePath(key)})
}

// Names returns a page of the node's table: keys with the prefix, after the key after. Limit 0 is
// the default page size of the node.
func (c Client) Names(ctx context.Context, prefix, after string, limit int) (NameList, error) {
	q := client.Query{}.Text("prefix", prefix).Text("after", after).Number("limit", uint64(max(limit, 0)))
	return client.Ask[NameList](ctx, c.Client, client.Call{Path: "/index/names", Query: q})
}

// Announce publishes provider records. It is idempotent.
func (c Client) Announce(ctx context.Context, records []Announcement) (AnnounceResults, error) {
	return client.Ask[AnnounceResults](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/index/providers", Body: Announce{records}})
}

// Withdraw removes this node's own provider record of a content id.
func (c Client) Withdraw(ctx context.Context, cid string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: "/index/providers/" + url.PathEscape(cid)})
	return err
}

// Reindex queues background lookups of keys.
func (c Client) Reindex(ctx context.Context, keys []string) (Reindexed, error) {
	return client.Ask[Reindexed](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: "/index/reindex", Body: Reindex{keys}})
}

// Peers returns the state of the peers that the node asks.
func (c Client) Peers(ctx context.Context) (PeerList, error) {
	return client.Ask[PeerList](ctx, c.Client, client.Call{Path: "/index/peers"})
}

// Identity returns the peer id and the public key of the node.
func (c Client) Identity(ctx context.Context) (NodeIdentity, error) {
	return client.Ask[NodeIdentity](ctx, c.Client, client.Call{Path: "/index/identity"})
}

func namePath(key string) string { return "/index/names/" + url.PathEscape(key) }

// Expires returns the time at which the record expires.
func (p Provider) Expires() time.Time { return time.UnixMilli(p.ExpiresMS) }
