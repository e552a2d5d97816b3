package console

import (
	"cmp"
	"context"
	"io/fs"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	"ronbox/httpapi/wire/edge"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/node"
	"ronbox/httpapi/wire/registry"
	"ronbox/httpapi/wire/rewarder"
	"ronbox/httpapi/wire/wallet"
)

// Names of the service and its paths.
const (
	service    = "console"
	prefix     = "/console/"
	enterPath  = prefix + "enter"
	staticPath = prefix + "static/"
	linkPath   = "/admin/v1/console/link"
	paramFile  = "file"
	paramTopic = "topic"
)

// Bounds of the routes.
const (
	pageWithin = 10 * time.Second
	maxForm    = 64 << 10 // bytes of a form
	entrances  = 10       // burst of sign-in attempts of one network, and its number in ten seconds
	networks   = 4096     // networks with tracked sign-in attempts
)

// Deps are the neighbours of a Console. All are needed.
type Deps struct {
	Catalog *flow.Catalog
	Node    func() http.Handler // the node's router, once it is there
	Info    func() wire.VersionInfo
	URL     func() string // of the node's TCP listener
	// Certified reports whether the node's certificate names a host.
	Certified func(host string) bool
	Now       func() time.Time
	Manual    fs.FS // Markdown: README.md, which lists the topics, and TOPIC.md for each
	// Note puts the begin or the end of a session on the audit chain, if it can.
	Note func(ctx context.Context, event string, by engines.Actor, corrID string, detail map[string]string)
}

// Console serves the pages. Its methods may be called from any goroutine.
type Console struct {
	d        Deps
	rules    atomic.Pointer[rules]
	sessions *sessions
	entering *limit.Keyed[netip.Addr]
	files    map[string]file
	pages    pages
	book     book
	cross    *http.CrossOriginProtection
	asked    atomic.Uint64

	node     node.Client
	registry registry.Client
	wallet   wallet.Client
	rewarder rewarder.Client
	edge     edge.Client
	index    index.Client
}

// New returns a console. It starts nothing.
func New(cfg Config, d Deps) (*Console, error) {
	h := &Console{
		d:        d,
		sessions: newSessions(d.Catalog),
		entering: limit.NewKeyed[netip.Addr](networks, 1, entrances),
		files:    staticFiles(),
		cross:    http.NewCrossOriginProtection(),
	}
	c, err := client.New(client.Options{
		URL: "http://console", Transport: inside{d.Node, &h.asked}, UserAgent: "ronbox-console",
	})
	if err != nil {
		return nil, err
	}
	h.node, h.registry, h.wallet = node.NewClient(c), registry.NewClient(c), wallet.NewClient(c)
	h.rewarder, h.edge, h.index = rewarder.NewClient(c), edge.NewClient(c), index.NewClient(c)
	h.pages = newPages(h.files)
	if h.book, err = newBook(d.Manual); err != nil {
		return nil, err
	}
	h.Reload(cfg)
	return h, nil
}

// Reload puts a valid configuration in force.
func (h *Console) Reload(cfg Config) { h.rules.Store(newRules(cfg)) }

// Asked returns the number of requests that the pages have made of the node since the start.
func (h *Console) Asked() uint64 { return h.asked.Load() }

// policy is the Content-Security-Policy of pages and their files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Service returns the console's part of the surface.
func (h *Console) Service() httpapi.Service {
	page := func(r *httpapi.Route) {
		r.Local = true // it asks the node inside, which forwards
		r.Page, r.CSP, r.Others, r.Endpoint = true, policy, httpapi.QueryIgnore, httpapi.EndpointRead
		r.Deadline, r.Drains = cmp.Or(r.Deadline, pageWithin), true
		if r.Method == "" {
			r.Method = http.MethodGet
		}
		if r.Method == http.MethodPost {
			r.Body, r.Media, r.MaxBody = httpapi.StreamBody, "application/x-www-form-urlencoded", maxForm
		}
	}
	routes := httpapi.Routes(page,
		httpapi.Route{Pattern: "/", Handle: h.getRoot, Class: httpapi.ClassStatic},
		httpapi.Route{Pattern: "/favicon.ico", Handle: h.getIcon, Class: httpapi.ClassStatic},
		httpapi.Route{Pattern: staticPath + "*" + paramFile, Handle: h.getStatic, Class: httpapi.ClassStatic},
		httpapi.Route{Pattern: enterPath, Handle: h.getEnter, Class: httpapi.ClassStatic},
		httpapi.Route{Method: http.MethodPost, Pattern: enterPath, Handle: h.postEnter},
		httpapi.Route{Pattern: manualPath + "/:" + paramTopic, Handle: h.getManual},
	)
	for _, p := range h.pages.all {
		routes = append(routes, httpapi.Routes(page, httpapi.Route{Pattern: p.path, Handle: h.show(p)})...)
	}
	for _, f := range h.forms() {
		routes = append(routes, httpapi.Routes(page,
			httpapi.Route{Method: http.MethodPost, Pattern: f.path, Handle: h.form(f), Deadline: f.within})...)
	}
	return httpapi.Service{
		Name:   service,
		Prefix: prefix,
		Admits: h.admits,
		Params: []httpapi.PathParam{
			{Param: openapi.Param{Name: paramFile, Doc: "of an embedded file"}},
			{Param: openapi.Param{Name: paramTopic, Doc: "of the manual"}},
		},
		Routes: append(routes, h.linkRoute()),
	}
}
