package index

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	indexapi "ronbox/httpapi/wire/index"
)

const routingPath = "/routing/v1/"

// routing returns the routes of the Delegated Routing standard. Pages of any origin may read them.
// The standard demands 501 for its operations that this node does not have: writes, and peers,
// IPNS and the DHT.
func (h handlers) routing() []httpapi.Route {
	anyPage := func() bool { return true }
	lookup := httpapi.Routes(h.lookup, httpapi.Route{
		Pattern: routingPath + "providers/:cid",
		Handle:  h.getRouting,
		Shared:  anyPage,
		ID:      "findRoutingProviders",
		Summary: "The providers of a content id, by the Delegated Routing standard",
		Query:   httpapi.Params(filterAddrs, filterProtocols),
		Others:  httpapi.QueryIgnore,
		Answers: []openapi.Answer{
			httpapi.Answers(http.StatusOK, indexapi.Routing{})[0],
			{
				Status: http.StatusOK,
				Type:   httpapi.TypeLines,
				Doc:    "if the request accepts it: one record per line",
				Body:   indexapi.PeerRecord{},
			},
		},
	})
	for _, missing := range []struct{ method, pattern string }{
		{http.MethodPut, "providers"},
		{http.MethodPut, "providers/:cid"},
		{http.MethodGet, "peers/:peer"},
		{http.MethodGet, "ipns/:ipns"},
		{http.MethodPut, "ipns/:ipns"},
		{http.MethodGet, "dht/closest/peers/:cid"},
	} {
		lookup = append(lookup, httpapi.Route{
			Method:  missing.method,
			Pattern: routingPath + missing.pattern,
			Handle:  func(*httpapi.Request) error { return errNotImplemented },
			Class:   httpapi.ClassStatic,
			Page:    true,
			Shared:  anyPage,
		})
	}
	return lookup
}

var errNotImplemented = errors.New("this node has only GET " + routingPath + "providers/{cid} of Delegated Routing")

// Query parameters of getRouting (IPIP-484).
var (
	filterAddrs = httpapi.Text("filter-addrs",
		"protocols of addresses, separated by commas: an address stays if it has one of them, and none with a ! "+
			"before it; unknown: also providers without addresses")
	filterProtocols = httpapi.Text("filter-protocols",
		"transfer protocols, separated by commas: a provider stays if it has one of them; unknown: also providers "+
			"whose protocols are not known, which are all of this node")
)

// filter is a parsed parameter of IPIP-484. The zero filter admits everything.
type filter struct {
	given   bool
	unknown bool            // admits a provider about which nothing is known
	with    map[string]bool // one of these names is required; empty: none is
	without map[string]bool // names that exclude
}

// unknownProtocol is the name that admits providers about which nothing is known.
const unknownProtocol = "unknown"

// parseFilter parses a list of names. Letter case has no meaning.
func parseFilter(list string) filter {
	f := filter{given: list != "", with: map[string]bool{}, without: map[string]bool{}}
	for one := range strings.SplitSeq(strings.ToLower(list), ",") {
		not, negative := strings.CutPrefix(one, "!")
		switch {
		case one == unknownProtocol:
			f.unknown = true
		case negative:
			f.without[not] = true
		case one != "":
			f.with[one] = true
		}
	}
	return f
}

// admits reports whether f admits an address or a provider with the protocols names.
func (f filter) admits(names []string) bool {
	has := func(set map[string]bool) bool {
		return slices.ContainsFunc(names, func(n string) bool { return set[strings.ToLower(n)] })
	}
	switch {
	case !f.given:
		return true
	case len(names) == 0:
		return f.unknown
	}
	return !has(f.without) && (len(f.with) == 0 || has(f.with))
}

// recordsOf returns the records of providers that the filters admit, each with its admitted
// addresses. A provider without one is left out. This node knows no transfer protocols.
func recordsOf(all []name.Provider, addrs, protocols filter) []indexapi.PeerRecord {
	out := make([]indexapi.PeerRecord, 0, len(all))
	if !protocols.admits(nil) {
		return out
	}
	for i := range all {
		p := &all[i]
		r := indexapi.PeerRecord{Schema: schemaPeer, ID: string(p.Peer), Addrs: p.Addrs, Ron: p.Record}
		if addrs.given {
			r.Addrs = slices.DeleteFunc(slices.Clone(p.Addrs), func(a string) bool {
				return !addrs.admits(name.Protocols(a))
			})
			if len(r.Addrs) == 0 && (len(p.Addrs) > 0 || !addrs.unknown) {
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// Cache-Control of Delegated Routing as its standard advises. An empty answer is cached for less
// time.
const (
	cacheRecords   = "public, max-age=300, stale-while-revalidate=600, stale-if-error=3600"
	cacheNoRecords = "public, max-age=15, stale-while-revalidate=60, stale-if-error=3600"
)

// schemaPeer is the only schema of the records that this node serves.
const schemaPeer = "peer"

// maxRouting bounds the records of one answer, as the standard does.
const maxRouting = 100

// getRouting serves GET /routing/v1/providers/:cid. The answer is empty if no provider is known.
func (h handlers) getRouting(c *httpapi.Request) error {
	cid, err := name.ParseCID(c.Param(paramCID))
	addrs, errAddrs := filterAddrs.Of(c)
	protocols, errProtocols := filterProtocols.Of(c)
	if err := cmp.Or(errAddrs, errProtocols); err != nil {
		return err
	}
	var set name.ProviderSet
	if err == nil {
		o := name.ProvidersOptions{Limit: maxRouting, Local: fromNode(c)}
		if o.From, err = caller(c, false); err == nil {
			set, err = h.idx.Providers(c.Context(), cid, o)
		}
	}
	if err != nil && !errors.Is(err, name.ErrNotFound) && !errors.Is(err, name.ErrForeignCID) {
		return err
	}
	records := recordsOf(set.Providers, parseFilter(addrs), parseFilter(protocols))
	cache := cacheRecords
	switch {
	case httpapi.IsA[*name.SilentError](err): // a peer may know more a moment later
		cache = httpapi.CacheAsk
	case len(records) == 0:
		cache = cacheNoRecords
	}
	if h.limits.closed {
		cache = strings.Replace(cache, "public", "private", 1)
	}
	c.Header().Add("Vary", "Accept")
	if !wantsLines(c.HTTP()) {
		return c.RespondCached(http.StatusOK, cache, indexapi.Routing{Providers: records})
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
	_, _ = c.Write(body) // fails only if the client has left
	return nil
}

// wantsLines reports whether the request accepts one record per line at least as much as one
// document.
func wantsLines(r *http.Request) bool {
	accept := r.Header["Accept"]
	lines := httpapi.Weight(accept, httpapi.TypeLines)
	return lines > 0 && lines >= httpapi.Weight(accept, httpapi.TypeJSON)
}
