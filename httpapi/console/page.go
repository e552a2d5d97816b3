package console

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"ronbox/httpapi"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// view is one page being made for one session.
type view struct {
	h   *Console
	c   *httpapi.Request
	s   *session
	ctx context.Context // calls are made with the rights of s
	in  url.Values      // the query, or the form that was refused

	refused refusal
}

// page is one page of the console.
type page struct {
	path  string
	title string
	nav   string // its entry in the navigation; "": none
	cli   string // the command that shows the same
	owner string // the service that it is about; "": the node
	data  func(*view) any
	tmpl  func() *template.Template // parses it once
}

// pages are the pages by kind.
type pages struct {
	all   []*page
	enter *page
	fault *page
	sure  *page // asks again before a change that cannot be undone
	// a payment with an unknown outcome
	unsure *page
	minted *page // a new token, shown once
	manual *page // of each topic
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
	Refused   refusal
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
			return h.render(c, http.StatusOK, h.pages.enter, nil, entrance{errNoToken.Error(), here(c)})
		}
		return v.render(http.StatusOK, p, data)
	}
}

// errSignedOut is shown when a form comes without a session.
const errSignedOut = notice("You were signed out. Nothing was done. Enter again to return to the page.")

// begin finds the session of a request. It returns true if it has answered.
func (h *Console) begin(c *httpapi.Request) (v *view, done bool, err error) {
	r := c.HTTP()
	s, _ := h.sessionOf(c)
	switch {
	case s != nil:
		v = &view{h: h, c: c, s: s, in: r.URL.Query()}
		v.ctx = as(c.Context(), s, front.PeerOf(r))
		return v, false, nil
	case r.Method == http.MethodPost:
		return nil, true, h.render(c, http.StatusUnauthorized, h.pages.enter, nil,
			entrance{errSignedOut.Error(), pageOfForm(r.URL.Path)})
	case r.URL.Path == prefix:
		return nil, true, h.render(c, http.StatusOK, h.pages.enter, nil, entrance{Next: here(c)})
	}
	return nil, true, see(c, enterPath+"?next="+url.QueryEscape(here(c)))
}

// maxNext bounds a page that the entrance leads to, bytes.
const maxNext = 2000

// nextPage returns the page of the console that next names, else the overview.
func nextPage(next string) string {
	at, err := url.Parse(next)
	if err != nil || len(next) > maxNext || !strings.HasPrefix(next, prefix) || at.Host != "" ||
		at.Path == enterPath || strings.ContainsFunc(next, unicode.IsControl) {
		return prefix
	}
	return next
}

// here returns the page that a request is of, to return to.
func here(c *httpapi.Request) string { return nextPage(c.HTTP().URL.RequestURI()) }

// pageOfForm returns the page with the form that is sent to a path.
func pageOfForm(path string) string {
	at := path[:strings.LastIndex(path, "/")]
	if at+"/" == prefix {
		return prefix
	}
	return at
}

// missing answers a browser for a path below /console/ that no page has.
func (h *Console) missing(c *httpapi.Request) error {
	s, _ := h.sessionOf(c)
	c.Set("Content-Security-Policy", policy)
	return h.fault(c, s, http.StatusNotFound, "There is no such page.")
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
	return write(c, status, p, h.frame(p, s, data))
}

// render answers with a page for the session of v.
func (v *view) render(status int, p *page, data any) error {
	f := v.h.frame(p, v.s, data)
	f.Refused = v.refused
	return write(v.c, status, p, f)
}

func write(c *httpapi.Request, status int, p *page, f frame) error {
	var out bytes.Buffer
	if err := p.tmpl().ExecuteTemplate(&out, "layout", f); err != nil {
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

// see sends the browser to another page.
func see(c *httpapi.Request, to string) error {
	c.Set("Cache-Control", httpapi.CacheNone)
	c.Set("Location", to)
	c.WriteHeader(http.StatusSeeOther)
	return nil
}

// entrance is the data of the page of entrance.
type entrance struct{ Fault, Next string }

// notice is an error worded for the person at the browser.
type notice string

// Error returns the text.
func (n notice) Error() string { return string(n) }
