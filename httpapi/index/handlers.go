package index

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/engines/index"
	"ronbox/httpapi"
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
	o := index.ResolveOptions{Local: fromNode(c)}
	if o.Fresh, err = flag(c, "fresh"); err != nil {
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

// appendResolved writes a as Resolved: by hand, since this is what is asked for most. No text of it has a character that JSON escapes.
func appendResolved(b []byte, a *index.Answer) []byte {
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
	cid, err := index.ParseCID(c.Param(paramCID))
	if err != nil {
		return err
	}
	o := index.ProvidersOptions{Region: c.Query().Get("region"), Local: fromNode(c)}
	if index.CheckRegion(o.Region) != nil {
		return httpapi.BadQuery("region", "must be 1 to 32 of a-z, 0-9 and hyphens")
	}
	limit, err := c.Number("limit", defaultProviders, 1, maxProviders)
	if err != nil {
		return err
	}
	if o.Limit = int(limit); err == nil {
		o.Fresh, err = flag(c, "fresh")
	}
	if err == nil {
		o.From, err = caller(c, o.Fresh && !o.Local)
	}
	if err != nil {
		return err
	}
	set, err := h.idx.Providers(c.Context(), cid, o)
	if err != nil {
		return err
	}
	out := Providers{CID: set.CID.String(), Providers: make([]Provider, len(set.Providers)), Source: string(set.Source)}
	for i := range set.Providers {
		p := &set.Providers[i]
		out.Providers[i] = Provider{string(p.Peer), p.Addrs, p.Region, p.Verified, p.ExpiresMS}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return c.SendTagged(httpapi.CacheAsk, set.ETag, append(body, '\n')) // kept or not, it is asked each time: whoever has put a name reads it
}

// Cache-Control of Delegated Routing, as its standard advises: less where nobody was found.
const (
	cacheRecords   = "public, max-age=300, stale-while-revalidate=600, stale-if-error=3600"
	cacheNoRecords = "public, max-age=15, stale-while-revalidate=60, stale-if-error=3600"
)

// schemaPeer is the one schema that is given out.
const schemaPeer = "peer"

// getRouting serves GET /routing/v1/providers/:cid. Nobody known is an empty answer there, and a page of any origin may read it.
func (h handlers) getRouting(c *httpapi.Request) error {
	cid, err := index.ParseCID(c.Param(paramCID))
	var set index.ProviderSet
	if err == nil {
		o := index.ProvidersOptions{Limit: maxRouting, Local: fromNode(c)}
		if o.From, err = caller(c, false); err == nil {
			set, err = h.idx.Providers(c.Context(), cid, o)
		}
	}
	if err != nil && !errors.Is(err, index.ErrNotFound) && !errors.Is(err, index.ErrForeignCID) {
		return err
	}
	records := make([]PeerRecord, len(set.Providers))
	for i := range set.Providers {
		p := &set.Providers[i]
		records[i] = PeerRecord{Schema: schemaPeer, ID: string(p.Peer), Addrs: p.Addrs, Ron: p.Record}
	}
	cache := cacheRecords
	if len(records) == 0 {
		cache = cacheNoRecords
	}
	header := c.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Add("Vary", "Accept")
	if !wantsLines(c.HTTP()) {
		return c.RespondCached(http.StatusOK, cache, Routing{records})
	}
	var body []byte
	for i := range records {
		line, err := json.Marshal(&records[i])
		if err != nil {
			return err
		}
		body = append(append(body, line...), '\n')
	}
	c.Set("Content-Type", httpapi.TypeLines)
	c.Set("Cache-Control", cache)
	c.Set("Content-Length", strconv.Itoa(len(body)))
	c.WriteHeader(http.StatusOK)
	_, _ = c.Write(body) // the client has left, or reads it
	return nil
}

// maxRouting bounds the records of one answer, as the standard does for a document.
const maxRouting = 100

// wantsLines reports whether the caller names a record a line, and names a document no more than that.
func wantsLines(r *http.Request) bool {
	accept := r.Header["Accept"]
	lines := httpapi.Weight(accept, httpapi.TypeLines)
	return lines > 0 && lines >= httpapi.Weight(accept, httpapi.TypeJSON)
}

// getNames serves GET /index/names.
func (h handlers) getNames(c *httpapi.Request) error {
	limit, err := c.Number("limit", defaultNames, 1, maxNames)
	if err != nil {
		return err
	}
	all, err := h.idx.Names(c.Context(), c.Query().Get("prefix"), c.Query().Get("after"), int(limit))
	if err != nil {
		return err
	}
	out := NameList{Names: make([]NameRow, len(all))}
	for i := range all {
		out.Names[i] = nameRow(all[i])
	}
	if len(all) == int(limit) {
		out.Next = out.Names[len(all)-1].Key
	}
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk, out)
}

func nameRow(n index.Named) NameRow {
	return NameRow{Key: n.Key.String(), Manifest: n.Manifest.String(), Seq: n.Seq, UpdatedMS: n.UpdatedMS}
}

// getName serves GET /index/names/:key.
func (h handlers) getName(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	n, err := h.idx.Name(c.Context(), key)
	if err != nil {
		return err
	}
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk, nameRow(n))
}

// getPeers serves GET /index/peers.
func (h handlers) getPeers(c *httpapi.Request) error {
	all := h.idx.Peers()
	out := PeerList{Peers: make([]PeerState, len(all))}
	for i, p := range all {
		out.Peers[i] = PeerState{p.Target, p.Region, p.Breaker, p.RetryAfter.Milliseconds(), p.Asked, p.Failed, p.LastError}
	}
	return c.Respond(http.StatusOK, out)
}

// getIdentity serves GET /index/identity.
func (h handlers) getIdentity(c *httpapi.Request) error {
	id, key := h.idx.Identity()
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk, NodeIdentity{string(id), hex.EncodeToString(key)})
}

// putName serves PUT /index/names/:key.
func (h handlers) putName(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	var in NamePut
	if err := c.Decode(&in); err != nil {
		return err
	}
	manifest, err := index.ParseCID(in.Manifest)
	if err != nil {
		return httpapi.BadBody("manifest", `must be "b3:" and 64 lower-case hex digits`)
	}
	n, created, err := h.idx.PutName(c.Context(), c.Actor(), key, manifest, c.CorrID())
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.Respond(status, nameRow(n))
}

// deleteName serves DELETE /index/names/:key.
func (h handlers) deleteName(c *httpapi.Request) error {
	key, err := keyParam(c)
	if err != nil {
		return err
	}
	forget, err := flag(c, "forget")
	if err != nil {
		return err
	}
	remove := h.idx.DeleteName
	if forget {
		remove = h.idx.ForgetName
	}
	if err := remove(c.Context(), c.Actor(), key, c.CorrID()); err != nil {
		return err
	}
	return c.Empty()
}

// postProviders serves POST /index/providers.
func (h handlers) postProviders(c *httpapi.Request) error {
	var in Announce
	if err := c.Decode(&in); err != nil {
		return err
	}
	all, err := in.announcements()
	if err != nil {
		return err
	}
	done, err := h.idx.Announce(c.Context(), c.Actor(), all, c.CorrID())
	if err != nil {
		return err
	}
	out := AnnounceResults{Results: make([]AnnounceResult, len(done))}
	for i, d := range done {
		r := &out.Results[i]
		if r.Accepted = d.Err == nil; !r.Accepted {
			r.Reason = d.Err.Error()
		}
		if !d.CID.IsZero() {
			r.CID = d.CID.String()
		}
		r.Peer, r.ExpiresMS = string(d.Peer), d.ExpiresMS
	}
	return c.Respond(http.StatusOK, out)
}

// announcements checks the form of a request; what is in the records the engine checks.
func (in *Announce) announcements() ([]index.Announcement, error) {
	if n := len(in.Providers); n == 0 || n > index.MaxAnnouncements {
		return nil, httpapi.BadBody("providers", "must hold 1 to "+strconv.Itoa(index.MaxAnnouncements)+" records")
	}
	out := make([]index.Announcement, len(in.Providers))
	for i := range in.Providers {
		a, member := &in.Providers[i], "providers."+strconv.Itoa(i)
		if a.Record != nil {
			if a.CID != "" || a.Addrs != nil || a.Region != "" || a.TTL != 0 {
				return nil, httpapi.BadBody(member, "must hold a record or the other members")
			}
			out[i].Record = a.Record
			continue
		}
		cid, err := index.ParseCID(a.CID)
		switch {
		case err != nil:
			return nil, httpapi.BadBody(member+".cid", `must be "b3:" and 64 lower-case hex digits, or a CID of BLAKE3 with 32 bytes`)
		case a.TTL > maxTTL:
			return nil, httpapi.BadBody(member+".ttl_s", "must be 60 to 172800")
		}
		out[i] = index.Announcement{CID: cid, Addrs: a.Addrs, Region: a.Region, TTL: time.Duration(a.TTL) * time.Second}
	}
	return out, nil
}

// maxTTL keeps a time to live from overflowing; its bounds are the engine's.
const maxTTL = 1 << 31 // seconds

// deleteProvider serves DELETE /index/providers/:cid.
func (h handlers) deleteProvider(c *httpapi.Request) error {
	cid, err := index.ParseCID(c.Param(paramCID))
	if err != nil {
		return err
	}
	if err := h.idx.Withdraw(c.Context(), c.Actor(), cid, "", c.CorrID()); err != nil {
		return err
	}
	return c.Empty()
}

// postReindex serves POST /index/reindex.
func (h handlers) postReindex(c *httpapi.Request) error {
	var in Reindex
	if err := c.Decode(&in); err != nil {
		return err
	}
	if len(in.Keys) == 0 || len(in.Keys) > maxReindex {
		return httpapi.BadBody("keys", "must hold 1 to "+strconv.Itoa(maxReindex))
	}
	queued, err := h.idx.Reindex(c.Context(), c.Actor(), in.Keys, c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusAccepted, Reindexed{queued})
}

// keyParam reads the key of a path: a name, or a content id in any of its forms.
func keyParam(c *httpapi.Request) (index.Key, error) {
	text := c.Param(paramKey)
	if strings.HasPrefix(text, "name:") || strings.HasPrefix(text, "b3:") {
		return index.ParseKey(text)
	}
	cid, err := index.ParseCID(text)
	var malformed *index.CIDError
	if errors.As(err, &malformed) {
		return index.ParseKey(text) // which says what a key may be
	}
	if err != nil {
		return index.Key{}, err
	}
	return index.ParseKey(cid.String())
}

// fromNode reports whether another node asks, for a client of its own. Its answer differs, which caches on the way are told.
func fromNode(c *httpapi.Request) bool {
	c.Header().Add("Vary", hopHeader)
	return c.HTTP().Header[hopHeader] != nil
}

// caller returns the network that a lookup is for, and what the lookup costs of its rate: more if a caller without a
// token asks for it fresh, since the answer is written over everybody's.
func caller(c *httpapi.Request, fresh bool) (from index.Caller, err error) {
	network, socket := c.Network()
	switch {
	case socket:
	case fresh && !c.Holds(scopePublish):
		from.Cost = freshCost
		err = c.Charge(freshCost - 1)
	default:
		from.Cost = 1
	}
	from.Network = network
	return from, err
}

// flag is a query parameter that is 0 or 1.
func flag(c *httpapi.Request, name string) (bool, error) {
	switch v := c.Query().Get(name); {
	case v == "1":
		return true, nil
	case v == "0", !c.Query().Has(name):
		return false, nil
	}
	return false, httpapi.BadQuery(name, "must be 0 or 1")
}
