package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"ronbox/httpapi"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

//go:embed templates
var templateFiles embed.FS

// view is one page being made for one session.
type view struct {
	h   *Console
	c   *httpapi.Request
	s   *session
	ctx context.Context // calls are made with the rights of s
	in  url.Values      // the query
}

// page is one page of the console.
type page struct {
	path  string
	title string
	nav   string // its entry in the navigation; "": none
	cli   string // the command that shows the same
	owner string // the service that it is about; "": the node
	data  func(*view) any
	tmpl  *template.Template
}

// pages are the pages by kind.
type pages struct {
	all   []*page
	enter *page
	fault *page
	sure  *page // asks again before a change that cannot be undone
	// a payment with an unknown outcome
	unsure *page
	manual *page // of each topic
}

func newPages(files map[string]file) pages {
	funcs := templateFuncs(files)
	read := func(name string) *template.Template {
		return template.Must(template.New("layout.html").Funcs(funcs).
			ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/"+name+".html"))
	}
	p := pages{
		enter:  &page{title: "Enter", tmpl: read("enter")},
		fault:  &page{title: "Not done", tmpl: read("fault")},
		sure:   &page{title: "Are you sure?", tmpl: read("sure")},
		unsure: &page{title: "Not known", tmpl: read("unsure")},
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
		{"index", page{path: prefix + "index", title: "Index", nav: "Index", cli: "ronbox index ls",
			owner: "index", data: indexPage}},
		{"operations", page{path: prefix + "operations", title: "Operations", nav: "Operations", cli: "ronbox doctor",
			data: operationsPage}},
		{"manual", page{path: manualPath, title: "Manual", nav: "Manual", cli: "ronbox help", data: manualIndex}},
	}
}

// frame is what every template is given.
type frame struct {
	Title     string
	Nav       []navItem
	Info      wire.VersionInfo
	Session   *session
	Form      string
	CLI       string
	Off       string // the service of the page, if it is off
	MayChange bool
	MayEnd    bool // other sessions
	Data      any
}

type navItem struct {
	Path, Name string
	Here, Off  bool
}

// show returns the handler of a page. Without a session the overview is the entrance, and the other
// pages lead there. If the token of the session is no longer accepted, each page is the entrance.
func (h *Console) show(p *page) httpapi.Handler {
	return func(c *httpapi.Request) error {
		v, done, err := h.begin(c)
		if done || err != nil {
			return err
		}
		if p.owner != "" && h.d.Info().Services[p.owner] == "off" {
			return h.render(c, http.StatusOK, p, v.s, nil)
		}
		data := p.data(v)
		if callerIn(v.ctx).refused.Load() { // each part of the page would say so
			return h.render(c, http.StatusOK, h.pages.enter, nil, entrance{errNoToken.Error()})
		}
		return h.render(c, http.StatusOK, p, v.s, data)
	}
}

// begin finds the session of a request. It returns true if it has answered.
func (h *Console) begin(c *httpapi.Request) (v *view, done bool, err error) {
	s, _ := h.sessionOf(c)
	if s == nil && c.HTTP().URL.Path == prefix {
		return nil, true, h.render(c, http.StatusOK, h.pages.enter, nil, entrance{})
	}
	if s == nil {
		return nil, true, see(c, prefix)
	}
	v = &view{h: h, c: c, s: s, in: c.HTTP().URL.Query()}
	v.ctx = as(c.Context(), s, front.PeerOf(c.HTTP()))
	return v, false, nil
}

// manualIndex returns the data of the page that lists the topics of the manual.
func manualIndex(v *view) any {
	page, err := v.h.book[bookList]()
	return read(page, err)
}

// getManual serves GET /console/manual/:topic.
func (h *Console) getManual(c *httpapi.Request) error {
	v, done, err := h.begin(c)
	if done || err != nil {
		return err
	}
	topic := c.Param(paramTopic)
	page, ok := h.book[topic]
	if !ok || topic == bookList {
		return h.fault(c, v.s, http.StatusNotFound, "The manual has no page of this name.")
	}
	text, err := page()
	p := *h.pages.manual
	p.title, p.cli = text.Title, "ronbox help "+topic
	return h.render(c, http.StatusOK, &p, v.s, read(text, err))
}

// fault answers with an error page.
func (h *Console) fault(c *httpapi.Request, s *session, status int, text string) error {
	return h.render(c, status, h.pages.fault, s, text)
}

// render answers with a page. If data is nil, a service's page shows that the service is off.
func (h *Console) render(c *httpapi.Request, status int, p *page, s *session, data any) error {
	var out bytes.Buffer
	if err := p.tmpl.ExecuteTemplate(&out, "layout", h.frame(p, s, data)); err != nil {
		return err
	}
	c.Set("Content-Type", "text/html; charset=utf-8")
	c.Set("Cache-Control", httpapi.CacheNone)
	head := c.Header()
	head.Set("Referrer-Policy", "same-origin") // without it the Origin of a form is null
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	c.WriteHeader(status)
	_, _ = c.Write(out.Bytes())
	return nil
}

// frame returns what the template of a page is given.
func (h *Console) frame(p *page, s *session, data any) frame {
	info := h.d.Info()
	f := frame{Title: p.title, Info: info, Session: s, CLI: p.cli, Data: data}
	if s != nil {
		f.Form, f.MayChange, f.MayEnd = s.form, s.write, s.write && s.token == ""
		for _, one := range h.pages.all {
			if one.nav != "" {
				f.Nav = append(f.Nav, navItem{one.path, one.nav, one == p, info.Services[one.owner] == "off"})
			}
		}
	}
	if data == nil && p.owner != "" {
		f.Off = p.owner
	}
	return f
}

// part is one datum of a page, or why it is not shown.
type part[T any] struct {
	V     T
	Fault string
}

// OK reports whether the datum is there.
func (p part[T]) OK() bool { return p.Fault == "" }

// read makes a part of the answer of a client.
func read[T any](v T, err error) part[T] {
	if err != nil {
		return part[T]{Fault: explain(err)}
	}
	return part[T]{V: v}
}

// errNoToken is shown when the token of a session has expired or was revoked.
const errNoToken = notice("The token of this session is no longer accepted. Enter again.")

// problemOf returns the problem document in err, or nil.
func problemOf(err error) *wire.Problem {
	p, _ := errors.AsType[*wire.Problem](err)
	return p
}

// explain describes an error for the person at the browser.
func explain(err error) string {
	p := problemOf(err)
	switch {
	case p == nil:
		return err.Error()
	case p.Status == http.StatusForbidden && p.Details["scope"] != nil:
		scope, _ := p.Details["scope"].(string)
		return "This needs the scope " + strings.ReplaceAll(scope, "|", " or ") + "."
	case p.Status == http.StatusUnauthorized:
		return errNoToken.Error()
	case p.Detail == "":
		return p.Title
	}
	return p.Title + ": " + p.Detail
}
