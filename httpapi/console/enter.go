package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// Link is the body of POST /admin/v1/console/link.
type Link struct {
	Write bool   `json:"write,omitzero" doc:"the session may change things"`
	TTLS  uint64 `json:"ttl_s,omitzero" max:"28800" doc:"seconds that the session lasts at most; 0: 8 hours"`
}

// Linked answers Link.
type Linked struct {
	Code      string       `json:"code" doc:"accepted once"`
	URL       string       `json:"url" doc:"opens the console with the code"`
	ExpiresAt wire.Instant `json:"expires_at" doc:"of the code"`
}

func (h *Console) linkRoute() httpapi.Route {
	return httpapi.Route{
		Method: http.MethodPost, Pattern: linkPath, Handle: h.postLink, Scope: "node.admin",
		Class: httpapi.ClassAdmin, Admin: true, Socket: true, Local: true, Drains: true, Endpoint: "admin",
		Deadline: httpapi.DefaultDeadline, Body: httpapi.JSONBody, In: Link{},
		ID: "openConsole", Summary: "Make a code that opens the console once",
		Answers: httpapi.Answers(http.StatusCreated, Linked{}),
	}
}

// postLink makes a code with the rights of the peer of the socket.
func (h *Console) postLink(c *httpapi.Request) error {
	var in Link
	if err := c.Decode(&in); err != nil {
		return err
	}
	peer := front.PeerOf(c.HTTP())
	r := rights{
		who: "uid:" + strconv.FormatUint(uint64(peer.UID), 10), uid: peer.UID, gid: peer.GID,
		write: in.Write, life: time.Duration(in.TTLS) * time.Second,
	}
	text, ends, err := h.sessions.grant(r, h.d.Now())
	if err != nil {
		return fmt.Errorf("%w: %w", flow.ErrBusy, err)
	}
	return c.Respond(http.StatusCreated, Linked{
		Code: text, URL: h.d.URL() + enterPath + "#" + text, ExpiresAt: wire.Instant{Time: ends},
	})
}

// getRoot serves GET /. It redirects a browser to the console. Other clients get a list of paths.
func (h *Console) getRoot(c *httpapi.Request) error {
	c.Header().Add("Vary", "Accept")
	if prefersHTML(c.HTTP().Header.Values("Accept")) && h.admits(c) {
		return see(c, prefix)
	}
	return c.Respond(http.StatusOK, map[string]string{
		"health": "/healthz", "ready": "/readyz", "version": "/version", "openapi": "/openapi.json",
	})
}

// prefersHTML reports whether Accept names text/html before JSON, as browsers do.
func prefersHTML(lines []string) bool {
	for one := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		kind, _, _ := strings.Cut(one, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/html":
			return true
		case httpapi.TypeJSON:
			return false
		}
	}
	return false
}

// getEnter serves the page of entrance.
func (h *Console) getEnter(c *httpapi.Request) error {
	return h.render(c, http.StatusOK, h.pages.enter, nil, entrance{Next: nextPage(c.HTTP().URL.Query().Get("next"))})
}

// postEnter begins a session with a code or a token.
func (h *Console) postEnter(c *httpapi.Request) error {
	if err := h.cross.Check(c.HTTP()); err != nil {
		return h.fault(c, nil, http.StatusForbidden, "This form was sent by a page of another site.")
	}
	in, err := readForm(c, "code", "token", "changes", "next")
	next := nextPage(in.Get("next"))
	again := func(status int, text string) error {
		return h.render(c, status, h.pages.enter, nil, entrance{text, next})
	}
	network, _ := c.Network()
	if ok, wait := h.entering.Take(network, h.d.Now()); !ok {
		c.Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
		return again(http.StatusTooManyRequests, "Too many tries. Wait a moment.")
	}
	if err != nil {
		return again(http.StatusBadRequest, err.Error())
	}
	r, err := h.rightsOf(c, in)
	if err != nil {
		return again(http.StatusForbidden, err.Error())
	}
	cookie, err := h.sessions.begin(r, front.PeerOf(c.HTTP()).String(), h.d.Now())
	if err != nil {
		return again(http.StatusTooManyRequests, err.Error())
	}
	if _, old := h.sessionOf(c); old != "" {
		h.sessions.end(old)
	}
	h.setCookie(c, cookie)
	h.note(c, "console.entered", &session{rights: r})
	return see(c, next)
}

// note puts on the audit chain that s has entered or left.
func (h *Console) note(c *httpapi.Request, event string, s *session) {
	by, with := engines.Actor{UID: &s.uid, Principal: s.who}, "code"
	if s.token != "" {
		by, with = engines.Actor{}, "token"
		if seen, err := auth.Inspect(s.token); err == nil { // the node has accepted it
			by = engines.Actor{CapID: seen.TID, Kid: seen.Kid, Principal: seen.Sub, Fingerprint: seen.Fingerprint}
		}
	}
	detail := map[string]string{
		"from": front.PeerOf(c.HTTP()).String(), "with": with, "write": strconv.FormatBool(s.write),
	}
	h.d.Note(context.WithoutCancel(c.Context()), event, by, c.CorrID(), detail)
}

// rightsOf returns the rights of a code or a token.
func (h *Console) rightsOf(c *httpapi.Request, in url.Values) (rights, error) {
	token := strings.TrimSpace(in.Get("token"))
	if token == "" {
		text := codeIn(in.Get("code"))
		r, ok := h.sessions.redeem(text, h.d.Now())
		switch {
		case !ok && len(text) != codeLength:
			return r, notice(fmt.Sprintf("A code has %d characters, and this one has %d. Copy all of it, or the whole "+
				"link.", codeLength, len(text)))
		case !ok:
			return r, notice("This code is not known, was used before or is older than a minute. " +
				"Run `ronbox console` again.")
		}
		return r, nil
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return rights{}, notice("A token is one line of letters, digits, - and _.")
	}
	r := rights{token: token, write: in.Get("changes") != ""}
	seen, err := auth.Inspect(token)
	if err != nil {
		return rights{}, notice("This is not a token of a ronbox node.")
	}
	r.who, r.name, r.scopes = "token:"+seen.TID, seen.Sub, seen.Scopes
	_, err = h.node.Status(as(c.Context(), &session{rights: r}, front.PeerOf(c.HTTP())))
	switch p := problemOf(err); {
	case err == nil, p != nil && p.Status == http.StatusForbidden: // the token is valid, and may have other scopes
		return r, nil
	case p != nil && p.Status == http.StatusUnauthorized:
		return rights{}, notice("The node does not accept this token: it is unknown, expired or revoked.")
	}
	return rights{}, notice("The token cannot be checked now. " + explain(err))
}

// codeLength is the number of characters of a code.
const codeLength = 43

// codeIn returns the code in what a person has pasted: a code, or the link that has it.
func codeIn(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '#')+1:]
}

// postLeave ends the session.
func (h *Console) postLeave(v *view, _ url.Values) error {
	_, cookie := h.sessionOf(v.c)
	h.sessions.end(cookie)
	h.note(v.c, "console.left", v.s)
	h.setCookie(v.c, "")
	return see(v.c, prefix)
}

// readForm reads a form of known fields, each at most once.
func readForm(c *httpapi.Request, known ...string) (url.Values, error) {
	raw, err := io.ReadAll(c.Stream())
	if err != nil {
		return nil, err
	}
	return parseForm(string(raw), known)
}

// parseForm parses a form of known fields, each at most once.
func parseForm(raw string, known []string) (url.Values, error) {
	in, err := url.ParseQuery(raw)
	if err != nil {
		return nil, notice("The form is not readable.")
	}
	for name, values := range in {
		if !slices.Contains(known, name) {
			return nil, notice(fmt.Sprintf("The form has a field %q, which is not known.", clip(name)))
		}
		if len(values) > 1 {
			return nil, notice(fmt.Sprintf("The form has the field %q more than once.", name))
		}
	}
	return in, nil
}

// clip returns the beginning of a text that may be long.
func clip(s string) string {
	if len(s) > 32 {
		return s[:32]
	}
	return s
}

// NewLink makes a code that opens the console. It is answered over the admin socket only.
func NewLink(ctx context.Context, c *client.Client, l Link) (Linked, error) {
	return client.Ask[Linked](ctx, c, client.Call{Method: http.MethodPost, Path: linkPath, Body: l})
}
