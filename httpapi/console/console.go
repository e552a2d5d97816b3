package console

import (
	"context"
	"io/fs"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/wire"
	"ronbox/httpapi/wire/cluster"
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

// policy is the Content-Security-Policy of pages and their files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

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
	cluster  cluster.Client
}

// Reload puts a valid configuration in force.
func (h *Console) Reload(cfg Config) { h.rules.Store(newRules(cfg)) }

// Asked returns the number of requests that the pages have made of the node since the start.
func (h *Console) Asked() uint64 { return h.asked.Load() }
