package index

import (
	"cmp"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/wire/index"
)

// handlers serve the routes of the index.
type handlers struct {
	idx    Engine
	limits *Limits
}

// getResolve serves GET /resolve/:key.
func (h handlers) getResolve(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	o := name.ResolveOptions{Local: fromNode(c)}
	if o.Fresh, err = fresh.Of(c); err != nil {
		return err
	}
	if o.From, err = caller(c, o.Fresh && !o.Local); err != nil {
		return err
	}
	a, err := h.idx.Resolve(c.Context(), key, o)
	if err != nil {
		return err
	}
	return c.SendTagged(httpapi.CacheAsk, a.ETag, appendResolved(make([]byte, 0, 384), &a))
}

// appendResolved appends a as a JSON Resolved. It is written by hand because this is the most
// frequent answer. No member needs JSON escapes.
func appendResolved(b []byte, a *name.Answer) []byte {
	b = append(append(b, `{"key":"`...), a.Key.String()...)
	b, _ = a.Manifest.AppendText(append(b, `","manifest":"`...)) // never fails
	b = append(append(b, `","source":"`...), a.Source...)
	b = strconv.AppendInt(append(b, `","freshness_s":`...), int64(a.Age/time.Second), 10)
	b = append(append(b, `,"etag":`...), a.ETag...)
	if !a.Conflict.IsZero() {
		b, _ = a.Conflict.AppendText(append(b, `,"conflict":"`...)) // never fails
		b = append(b, '"')
	}
	if a.Record != nil {
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"record":"`...), a.Record), '"')
	}
	return append(b, "}\n"...)
}

// getProviders serves GET /providers/:cid.
func (h handlers) getProviders(c *httpapi.Request) error {
	cid, err := name.ParseCID(c.Param(paramCID))
	if err != nil {
		return err
	}
	near, err := region.Of(c)
	limit, errLimit := providersLimit.Of(c)
	anew, errFresh := fresh.Of(c)
	if err := cmp.Or(err, errLimit, errFresh); err != nil {
		return err
	}
	o := name.ProvidersOptions{Region: near, Limit: int(limit), Fresh: anew, Local: fromNode(c)}
	if o.From, err = caller(c, o.Fresh && !o.Local); err != nil {
		return err
	}
	set, err := h.idx.Providers(c.Context(), cid, o)
	if err != nil {
		return err
	}
	out := indexapi.Providers{
		CID:       set.CID.String(),
		Providers: make([]indexapi.Provider, len(set.Providers)),
		Source:    string(set.Source),
	}
	for i := range set.Providers {
		p := &set.Providers[i]
		out.Providers[i] = indexapi.Provider{
			Peer: string(p.Peer), Addrs: p.Addrs, Region: p.Region, Valid: p.Verified, ExpiresMS: p.ExpiresMS,
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	// clients revalidate each time, so that a new provider shows at once
	return c.SendTagged(httpapi.CacheAsk, set.ETag, append(body, '\n'))
}

// keyParam parses the key of the path: a name, or a content id in any form.
func keyParam(c *httpapi.Request) (name.Key, error) {
	text := c.Param(paramKey)
	if strings.HasPrefix(text, "name:") || strings.HasPrefix(text, "b3:") {
		return name.ParseKey(text)
	}
	cid, err := name.ParseCID(text)
	var malformed *name.CIDError
	if errors.As(err, &malformed) {
		return name.ParseKey(text) // for an error that describes keys
	}
	if err != nil {
		return name.Key{}, err
	}
	return name.ParseKey(cid.String())
}

// fromNode reports whether another node asks for its own client. It adds the header to Vary, since
// the answer differs.
func fromNode(c *httpapi.Request) bool {
	c.Header().Add("Vary", hopHeader)
	return c.HTTP().Header[hopHeader] != nil
}

// caller returns the network of a lookup and its cost in rate tokens. A fresh lookup without a
// bearer token costs more, since its answer replaces the cached one for all callers.
func caller(c *httpapi.Request, fresh bool) (from name.Caller, err error) {
	network, socket := c.Network()
	switch {
	case socket:
	case fresh && !c.HoldsMore():
		from.Cost = freshCost
		err = c.Charge(freshCost - 1)
	default:
		from.Cost = 1
	}
	from.Network = network
	return from, err
}

// Query parameters of lookups.
var (
	fresh = httpapi.Flag("fresh", false,
		"1: the cache is not asked, the peers are; without a token it counts ten against the rate")
	region = httpapi.Checked(httpapi.Text("region", "those near it come first"), `^[a-z0-9-]{1,32}$`,
		"must be 1 to 32 of a-z, 0-9 and hyphens", func(v string) bool { return name.CheckRegion(v) == nil })
	providersLimit = httpapi.Number("limit", defaultProviders, 1, maxProviders, "providers at most")
)
