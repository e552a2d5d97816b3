package console

import (
	"cmp"
	"embed"
	"html/template"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire/cluster"
	"ronbox/httpapi/wire/edge"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/node"
	"ronbox/httpapi/wire/registry"
	"ronbox/httpapi/wire/rewarder"
	"ronbox/httpapi/wire/wallet"
)

//go:embed templates
var templateFiles embed.FS

// Bounds of the routes.
const (
	pageWithin = 10 * time.Second
	maxForm    = 64 << 10 // bytes of a form
	entrances  = 10       // burst of sign-in attempts of one network, and its number in ten seconds
	networks   = 4096     // networks with tracked sign-in attempts
)

// Deadlines of forms that may take longer than a page.
const (
	snapshotWithin = 10 * time.Minute
	reloadWithin   = 40 * time.Second // the node tries for half a minute
)

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
	h.cluster = cluster.NewClient(c)
	h.pages = newPages(h.files)
	if h.book, err = newBook(d.Manual); err != nil {
		return nil, err
	}
	h.Reload(cfg)
	return h, nil
}

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
		httpapi.Route{Pattern: prefix + "find", Handle: h.getFind, Class: httpapi.ClassStatic},
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
		Name:    service,
		Prefix:  prefix,
		Admits:  h.admits,
		Missing: h.missing,
		Params: []httpapi.PathParam{
			{Param: openapi.Param{Name: paramFile, Doc: "of an embedded file"}},
			{Param: openapi.Param{Name: paramTopic, Doc: "of the manual"}},
		},
		Routes: append(routes, h.linkRoute()),
	}
}

// newPages returns the pages. A template is parsed when its page is first shown: most nodes, and
// all verbs that make one, show none.
func newPages(files map[string]file) pages {
	frame := sync.OnceValue(func() *template.Template {
		return template.Must(template.New("layout.html").Funcs(templateFuncs(files)).
			ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	})
	read := func(name string) func() *template.Template {
		return sync.OnceValue(func() *template.Template {
			own := template.Must(frame().Clone())
			return template.Must(own.ParseFS(templateFiles, "templates/"+name+".html"))
		})
	}
	p := pages{
		enter:  &page{title: "Enter", tmpl: read("enter")},
		fault:  &page{title: "Not done", tmpl: read("fault")},
		sure:   &page{title: "Are you sure?", tmpl: read("sure")},
		unsure: &page{title: "Not known", tmpl: read("unsure")},
		minted: &page{title: "A new token", tmpl: read("minted")},
		manual: &page{tmpl: read("manual")},
	}
	for _, one := range allPages() {
		one.tmpl = read(one.file)
		p.all = append(p.all, &one.page)
	}
	return p
}

// pageFile is a page and the name of its template.
type pageFile struct {
	file string
	page
}

func allPages() []pageFile {
	return []pageFile{
		{"overview", page{path: prefix, title: "Overview", nav: "Overview", cli: "ronbox status", data: overview}},
		{"registry", page{path: prefix + "registry", title: "Registry", nav: "Registry", cli: "ronbox registry head",
			owner: "registry", data: registryPage}},
		{"wallet", page{path: prefix + "wallet", title: "Wallet", nav: "Wallet", cli: "ronbox wallet assets",
			owner: "wallet", data: walletPage}},
		{"receipt", page{path: prefix + "wallet/tx", title: "Receipt", cli: "ronbox wallet tx TXID",
			owner: "wallet", data: receiptPage}},
		{"rewards", page{path: prefix + "rewards", title: "Rewards", nav: "Rewards", cli: "ronbox rewarder show EPOCH",
			owner: "rewarder", data: rewardsPage}},
		{"edge", page{path: prefix + "edge", title: "Edge", nav: "Edge", cli: "ronbox edge packs",
			owner: "edge", data: edgePage}},
		{"index", page{path: prefix + "index", title: "Index", nav: "Index", cli: "ronbox index list",
			owner: "index", data: indexPage}},
		{"cluster", page{path: prefix + "cluster", title: "Cluster", nav: "Cluster", cli: "ronbox cluster status",
			data: clusterPage}},
		{"fleet", page{path: prefix + "fleet", title: "Fleet", nav: "Fleet", cli: "ronbox status", data: fleetPage}},
		{"site", page{path: prefix + "edge/site", title: "Site", cli: "ronbox index resolve NAME", owner: "index",
			data: sitePage}},
		{"pack", page{path: prefix + "edge/pack", title: "Pack", cli: "ronbox edge packs", owner: "edge",
			data: packPage}},
		{"operations", page{path: prefix + "operations", title: "Operations", nav: "Operations", cli: "ronbox doctor",
			data: operationsPage}},
		{"manual", page{path: manualPath, title: "Manual", nav: "Manual", cli: "ronbox help", data: manualIndex}},
	}
}

// forms returns the forms that change something.
func (h *Console) forms() []formRoute {
	const at = prefix + "operations/"
	payment := []string{"from", "to", "asset", "amount", "memo", "reference", "new"}
	return []formRoute{
		{path: prefix + "leave", do: h.postLeave},
		{path: prefix + "wallet/pay", fields: payment, writes: true, do: h.postPay},
		{path: at + "end", fields: []string{"id"}, writes: true, do: h.postEnd},
		{path: at + "snapshot", writes: true, scope: auth.ScopeAdmin, within: snapshotWithin, do: h.postSnapshot},
		{path: at + "reload", writes: true, scope: auth.ScopeAdmin, within: reloadWithin, do: h.postReload},
		{path: at + "level", fields: []string{"level"}, writes: true, scope: auth.ScopeAdmin, do: h.postLevel},
		{path: at + "revoke", fields: []string{"id", "sure"}, writes: true, scope: "node.token", do: h.postRevoke},
		{path: at + "mint", fields: []string{"sub", "scopes", "hours", "reference"}, writes: true, scope: "node.token",
			do: h.postMint},
		{path: at + "drain", fields: []string{"sure"}, writes: true, scope: auth.ScopeAdmin, do: h.postDrain},
	}
}
