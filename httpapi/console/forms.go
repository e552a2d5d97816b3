package console

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire/node"
)

// formRoute is a form that changes something.
type formRoute struct {
	path   string
	fields []string // beside `form`
	writes bool     // only a session that may change things may send it
	scope  string   // that the token of a session needs; "": the call that the form makes checks it
	within time.Duration
	do     func(*view, url.Values) error
}

// form returns the handler of a form. It refuses a form that does not come from a page of this
// session, and a session that lacks the rights.
func (h *Console) form(f formRoute) httpapi.Handler {
	known := append([]string{"form"}, f.fields...)
	return func(c *httpapi.Request) error {
		if err := h.cross.Check(c.HTTP()); err != nil {
			return h.fault(c, nil, http.StatusForbidden, "This form was sent by a page of another site.")
		}
		v, done, err := h.begin(c)
		if done || err != nil {
			return err
		}
		in, err := readForm(c, known...)
		if err != nil {
			return h.fault(c, v.s, http.StatusBadRequest, err.Error())
		}
		if subtle.ConstantTimeCompare([]byte(in.Get("form")), []byte(v.s.form)) != 1 {
			return h.fault(c, v.s, http.StatusForbidden, "This form is not of this session. Load its page again.")
		}
		if f.writes && !v.s.write {
			return h.fault(c, v.s, http.StatusForbidden, errReadOnly.Error())
		}
		if f.scope != "" && v.s.token != "" && !auth.Implies(v.s.scopes, f.scope) {
			return h.fault(c, v.s, http.StatusForbidden, "Nothing was changed. This needs the scope "+f.scope+".")
		}
		return f.do(v, in)
	}
}

// changed answers a form of the page of operations: with the part of the page that shows the
// change, or with the page, the values of the form and the reason why there is none.
func (h *Console) changed(v *view, part string, in url.Values, err error) error {
	if err == nil {
		return see(v.c, prefix+"operations#"+part)
	}
	p := problemOf(err)
	refuse := func(status int, r refusal) error { return v.refuse(prefix+"operations", status, in, r) }
	switch {
	case p == nil || p.Unknown():
		return refuse(http.StatusGatewayTimeout, refusal{Form: part, Text: "It is not known whether this was done. " +
			"Look before you try again. " + explain(err)})
	case v.s.token != "" && (p.Status == http.StatusNotFound || p.Status == http.StatusMethodNotAllowed):
		return refuse(http.StatusForbidden, refusal{Form: part, Text: "Nothing was changed. The node takes this " +
			"change over its admin socket only, or does not know its object: enter with a code of " +
			"`ronbox console --write`, or set server.admin_on_tcp."})
	}
	return refuse(p.Status, refusalOf(part, "Nothing was changed.", err))
}

// postSnapshot takes a snapshot into the folder of scheduled snapshots.
func (h *Console) postSnapshot(v *view, in url.Values) error {
	list, err := h.node.Snapshots(v.ctx)
	if err == nil {
		_, err = h.node.Snapshot(v.ctx, node.SnapshotRequest{Dir: list.Dir}, nil)
	}
	return h.changed(v, "snapshots", in, err)
}

// postReload makes the node read its configuration again.
func (h *Console) postReload(v *view, in url.Values) error {
	_, err := h.node.Reload(v.ctx)
	return h.changed(v, "config", in, err)
}

// postLevel changes the log level until the next reload or start.
func (h *Console) postLevel(v *view, in url.Values) error {
	_, err := h.node.SetLogLevel(v.ctx, node.LogLevel{Level: in.Get("level")})
	return h.changed(v, "config", in, err)
}

// question is the data of the page that asks again.
type question struct {
	Text   string // what happens, and that it cannot be taken back
	Action string // the path of the form
	ID     string // field of the form; "": the form has none
	Button string
	CLI    string // the command that does the same
}

// postRevoke revokes a token. It asks again first, because a revocation cannot be undone.
func (h *Console) postRevoke(v *view, in url.Values) error {
	id := strings.TrimSpace(in.Get("id"))
	if id == "" {
		return h.fault(v.c, v.s, http.StatusBadRequest, "id: must not be empty")
	}
	if in.Get("sure") != "yes" {
		return h.render(v.c, http.StatusOK, h.pages.sure, v.s, question{
			Text: "The node refuses this token from then on, and the tokens that were made of it. " +
				"This cannot be undone.",
			Action: prefix + "operations/revoke",
			ID:     id,
			Button: "Revoke it",
			CLI:    "ronbox token revoke " + id,
		})
	}
	_, err := h.node.Revoke(v.ctx, node.RevokeRequest{TID: id, Reason: "console"})
	return h.changed(v, "tokens", in, err)
}

// minted is the data of the page of a new token.
type minted struct {
	node.Token
	Sub    string
	Scopes []string
}

// maxHours bounds the life of a token that the console mints: a year.
const maxHours = 24 * 366

// postMint mints a token and shows it, once. A form that is sent again is refused: the answer to it
// cannot be repeated, because the node does not keep tokens.
func (h *Console) postMint(v *view, in url.Values) error {
	hours, err := strconv.Atoi(strings.TrimSpace(in.Get("hours")))
	if err != nil || hours < 1 || hours > maxHours {
		return v.refuse(prefix+"operations", http.StatusBadRequest, in, refusal{
			Form: "tokens", Text: "Nothing was changed.", Field: "hours",
			Wrong: fmt.Sprintf("must be a number from 1 to %d", maxHours),
		})
	}
	if !h.sessions.spend(v.s, in.Get("reference")) {
		return v.refuse(prefix+"operations", http.StatusConflict, in, refusal{
			Form: "tokens", Text: "This form was sent before, and nothing was changed now. A token is shown once: " +
				"if it did not reach you, revoke it below and mint another one.",
		})
	}
	m := node.MintRequest{Sub: strings.TrimSpace(in.Get("sub")), Scopes: strings.Fields(in.Get("scopes")),
		TTL: strconv.Itoa(hours) + "h"}
	token, err := h.node.Mint(v.ctx, m)
	if p := problemOf(err); p != nil && p.Status == http.StatusBadRequest && memberOf(p) == "" {
		return v.refuse(prefix+"operations", p.Status, in, refusal{
			Form: "tokens", Text: "Nothing was changed.", Field: "scopes", Wrong: p.Detail,
		})
	}
	if err != nil {
		return h.changed(v, "tokens", in, err)
	}
	return v.render(http.StatusOK, h.pages.minted, minted{token, m.Sub, m.Scopes})
}

// postDrain stops the node. It asks again first, because only its host can start it again.
func (h *Console) postDrain(v *view, in url.Values) error {
	if in.Get("sure") != "yes" {
		return h.render(v.c, http.StatusOK, h.pages.sure, v.s, question{
			Text: "The node answers the requests in flight and stops. These pages stop with it. " +
				"It is started again on its host.",
			Action: prefix + "operations/drain",
			Button: "Stop the node",
			CLI:    "ronbox drain",
		})
	}
	if err := h.node.Drain(v.ctx, "console"); err != nil {
		return h.changed(v, "config", in, err)
	}
	return h.fault(v.c, v.s, http.StatusAccepted, "The node stops. It is started again on its host.")
}

// postEnd ends another session, for a session that entered with a code.
func (h *Console) postEnd(v *view, in url.Values) error {
	if v.s.token != "" {
		return h.fault(v.c, v.s, http.StatusForbidden, "Only a session that entered with a code may end others.")
	}
	err := h.node.EndSession(v.ctx, in.Get("id"))
	if p := problemOf(err); p != nil && p.Status == http.StatusNotFound { // it has ended already
		err = nil
	}
	return h.changed(v, "sessions", in, err)
}
