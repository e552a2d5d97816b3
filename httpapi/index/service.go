package index

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"net/http"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	indexapi "ronbox/httpapi/wire/index"
)

// Reader looks up keys and providers.
type Reader interface {
	Resolve(ctx context.Context, key name.Key, o name.ResolveOptions) (name.Answer, error)
	Providers(ctx context.Context, cid b3.Digest, o name.ProvidersOptions) (name.ProviderSet, error)
	Name(ctx context.Context, key name.Key) (name.Named, error)
	Names(ctx context.Context, prefix, after string, limit int) (name.NamePage, error)
	Peers() []name.PeerStatus
	Identity() (name.PeerID, ed25519.PublicKey)
}

// Writer publishes names and providers. Each call blocks until its outcome is known or ctx ends.
type Writer interface {
	PutName(ctx context.Context, by engines.Actor, key name.Key, manifest b3.Digest,
		corrID string) (n name.Named, created bool, err error)
	DeleteName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error
	ForgetName(ctx context.Context, by engines.Actor, key name.Key, corrID string) error
	Announce(ctx context.Context, by engines.Actor, all []name.Announcement, corrID string) ([]name.Announced, error)
	Withdraw(ctx context.Context, by engines.Actor, cid b3.Digest, peer name.PeerID, corrID string) error
	Reindex(ctx context.Context, by engines.Actor, keys []string, corrID string) (queued int, err error)
}

// Engine is the part of the index that the routes call.
type Engine interface {
	Reader
	Writer
}

// ScopeRead is the scope that reads need if index.public_reads is false.
const ScopeRead = service + ".read"

const (
	service = "index"
	prefix  = "/index/"

	scopePublish = service + ".publish"
	scopeAdmin   = service + ".admin"

	paramKey = "key"
	paramCID = "cid"

	// lookupDeadline is longer than the largest index.dht.deadline_ms, so that a lookup ends by its
	// own deadline.
	lookupDeadline = 6 * time.Second

	maxProviders     = 32 // of one answer of /providers
	defaultProviders = 5
	maxNames         = 1000 // of one page
	defaultNames     = 100
	maxReindex       = 1000 // keys of one request
)

// New returns the routes of the index over e. They apply the limits that are current in l.
func New(e Engine, l *Limits) httpapi.Service {
	h := handlers{e, l}
	return httpapi.Service{
		Name: service, Errors: errorMaps(), Refusals: indexapi.Refusals, BusyByRoute: true,
		Routes: slices.Concat(h.lookups(), h.routing(), h.reads(), h.writes()),
		Params: []httpapi.PathParam{
			{
				Param: openapi.Param{
					Name: paramKey,
					Doc:  "name:docs.example, name:docs.example@1.2.0, b3:… or the text of a CID",
				},
			},
			{Param: openapi.Param{Name: paramCID, Doc: "b3:… or the text of a CID"}},
			{Param: openapi.Param{Name: "peer", Doc: "libp2p id"}},
			{Param: openapi.Param{Name: "ipns", Doc: "IPNS name"}},
		},
	}
}

// lookup completes a route that may ask peers.
func (h handlers) lookup(r *httpapi.Route) {
	httpapi.Read("", h.limits.readScope())(r)
	r.Deadline = lookupDeadline
	r.AnyParam = true
	r.Handle = h.limits.bound(r.Pattern, r.Handle)
	r.Headers = append(httpapi.IfNoneMatch(), openapi.Param{
		Name: hopHeader,
		Doc:  "set by a node that asks for one of its clients; peers are then not asked",
		Enum: []string{"0"},
	})
	r.Problems = []int{http.StatusNotFound}
}

// lookups returns the routes that may ask peers.
func (h handlers) lookups() []httpapi.Route {
	return httpapi.Routes(
		h.lookup,
		httpapi.Route{
			Pattern: "/resolve/:key",
			Handle:  h.getResolve,
			More:    scopePublish,
			ID:      "resolveName",
			Summary: "The manifest of a key",
			Answers: httpapi.Tagged(indexapi.Resolved{}),
			Query:   httpapi.Params(fresh),
		},
		httpapi.Route{
			Pattern: "/providers/:cid",
			Handle:  h.getProviders,
			More:    scopePublish,
			ID:      "findProviders",
			Summary: "The providers of a content id, the best first",
			Answers: httpapi.Tagged(indexapi.Providers{}),
			Query:   httpapi.Params(fresh, region, providersLimit),
		},
	)
}

// reads returns the routes that read this node's own state.
func (h handlers) reads() []httpapi.Route {
	read := func(r *httpapi.Route) {
		httpapi.Read(prefix, h.limits.readScope())(r)
		r.AnyParam = true
		r.Handle = h.limits.bound(r.Pattern, r.Handle)
	}
	ok := func(body any) []openapi.Answer { return httpapi.Answers(http.StatusOK, body) }
	return httpapi.Routes(
		read,
		httpapi.Route{
			Pattern: "names",
			Handle:  h.getNames,
			ID:      "listNames",
			Summary: "The keys of this node's file, in byte order",
			Answers: ok(indexapi.NameList{}),
			Query:   httpapi.Params(namesPrefix, namesAfter, namesLimit),
		},
		httpapi.Route{
			Pattern:  "names/:key",
			Handle:   h.getName,
			ID:       "getName",
			Summary:  "One key of this node's file",
			Answers:  ok(indexapi.NameRow{}),
			Problems: []int{http.StatusNotFound},
		},
		httpapi.Route{
			Pattern: "peers",
			Handle:  h.getPeers,
			ID:      "listPeers",
			Summary: "The peers of the node and their state",
			Answers: ok(indexapi.PeerList{}),
		},
		httpapi.Route{
			Pattern: "identity",
			Handle:  h.getIdentity,
			ID:      "getIdentity",
			Summary: "The peer id and the public key of this node",
			Answers: ok(indexapi.NodeIdentity{}),
		},
	)
}

// writes returns the routes that publish.
func (h handlers) writes() []httpapi.Route {
	write := func(r *httpapi.Route) {
		r.Scope = cmp.Or(r.Scope, scopePublish)
		httpapi.Write(prefix, service)(r)
		r.AnyParam = true
		r.Problems = append(r.Problems, http.StatusInsufficientStorage)
		r.Handle = h.limits.bound(r.Pattern, r.Handle)
	}
	changed := httpapi.Answers(http.StatusOK, indexapi.NameRow{})
	changed[0].Doc = "the key existed before"
	return httpapi.Routes(
		write,
		httpapi.Route{
			Method:   http.MethodPut,
			Pattern:  "names/:key",
			Endpoint: "put",
			Handle:   h.putName,
			ID:       "putName",
			Summary:  "Set the manifest of a key",
			Doc: "Sets a pointer, or a version once: another manifest for a version is refused as conflict. A " +
				"repetition with the same manifest changes nothing.",
			In:       indexapi.NamePut{},
			Answers:  append(httpapi.Answers(http.StatusCreated, indexapi.NameRow{}), changed...),
			Problems: []int{http.StatusConflict},
		},
		httpapi.Route{
			Method:   http.MethodDelete,
			Pattern:  "names/:key",
			Endpoint: "delete",
			Handle:   h.deleteName,
			ID:       "removeName",
			Summary:  "Remove a key",
			Doc: "Leaves a tombstone: a deleted version cannot be put with another manifest. A repetition is " +
				"refused as not_found.",
			Query:    httpapi.Params(forget),
			Answers:  httpapi.AnswersNothing("the key is removed"),
			Problems: []int{http.StatusNotFound},
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "providers",
			Endpoint: "announce",
			Handle:   h.postProviders,
			ID:       "publishProviders",
			Summary:  "Publish provider records",
			Doc: "Publishes up to 1000 records, each with its own result. A repetition replaces the record of the " +
				"same node and content id.",
			In:      indexapi.Announce{},
			Answers: httpapi.Answers(http.StatusOK, indexapi.AnnounceResults{}),
		},
		httpapi.Route{
			Method:   http.MethodDelete,
			Pattern:  "providers/:cid",
			Endpoint: "withdraw",
			Handle:   h.deleteProvider,
			ID:       "withdrawProvider",
			Summary:  "Remove this node's provider record of a content id",
			Doc:      "The record is no longer served or announced. A repetition is refused as not_found.",
			Answers:  httpapi.AnswersNothing("the record is removed"),
			Problems: []int{http.StatusNotFound},
		},
		httpapi.Route{
			Method:   http.MethodPost,
			Pattern:  "reindex",
			Endpoint: "reindex",
			Handle:   h.postReindex,
			Scope:    scopeAdmin,
			ID:       "reindexKeys",
			Summary:  "Look up keys again, in the background",
			Doc: "Queues lookups that bypass the cache, up to 1000, and does not wait for them. A repetition " +
				"queues them again.",
			In:      indexapi.Reindex{},
			Answers: httpapi.Answers(http.StatusAccepted, indexapi.Reindexed{}),
		},
	)
}
