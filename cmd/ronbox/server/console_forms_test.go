package server

import (
	"net/http"
	"strings"
	"testing"

	"ronbox/cmd/ronbox/server/config"
	nodeapi "ronbox/httpapi/wire/node"
)

// operationForms are the forms of the page of operations that act on the node, with their fields.
func operationForms(tid string) map[string]string {
	return map[string]string{
		"snapshot": "", "reload": "", "level": "&level=debug", "revoke": "&sure=yes&id=" + tid, "drain": "&sure=yes",
	}
}

// tokenOf mints a token.
func tokenOf(t *testing.T, r *rig, scopes ...string) nodeapi.Token {
	t.Helper()
	token, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{Sub: "viewer", Scopes: scopes})
	must(t, err)
	return token
}

// startUnchanged starts a node that finds its configuration unchanged on a reload.
func startUnchanged(t *testing.T, cfg *config.Config) *rig {
	t.Helper()
	same := func() (*config.Config, []config.Entry, error) { return cfg, nil, nil }
	return launchWith(t, cfg, Options{Load: same}).begin()
}

// untouched fails the test if the node has a snapshot, another log level, or a revoked token.
func untouched(t *testing.T, r *rig, tid string) {
	t.Helper()
	snapshots, err := r.socket().Snapshots(t.Context())
	must(t, err)
	level, err := r.socket().LogLevel(t.Context())
	must(t, err)
	if len(snapshots.Snapshots) > 0 || level.Level == "debug" || revoked(t, r, tid) {
		t.Errorf("the node was changed: %d snapshots, level %s", len(snapshots.Snapshots), level.Level)
	}
}

func revoked(t *testing.T, r *rig, tid string) bool {
	t.Helper()
	list, err := r.socket().Tokens(t.Context(), "", 0)
	must(t, err)
	for _, one := range list.Tokens {
		if one.TID == tid {
			return one.Revoked
		}
	}
	return true
}

// A form of operations is refused in a session that may only look, without the session's own field,
// with a field that it does not have, and from a page of another site.
func TestConsoleFormsOfOperationsAreGuarded(t *testing.T) {
	t.Parallel()
	for name := range operationForms("") {
		cfg, _ := devConfig(t)
		r := start(t, cfg) // a node for each, because of the rates
		token := tokenOf(t, r, "wallet.read")
		path, fields := "/console/operations/"+name, operationForms(token.TID)[name]
		looks, acts := newBrowser(t, r), newBrowser(t, r)
		looks.enter(r, false)
		acts.enter(r, true)
		form := "form=" + acts.form() + fields
		looks.wants(http.StatusForbidden, "POST", path, "form="+looks.form()+fields)
		acts.wants(http.StatusForbidden, "POST", path, "form=x"+fields)
		acts.wants(http.StatusForbidden, "POST", path, strings.TrimPrefix(fields, "&"))
		acts.wants(http.StatusBadRequest, "POST", path, form+"&amount=1")
		acts.wants(http.StatusForbidden, "POST", path, form, "Sec-Fetch-Site: cross-site")
		acts.wants(http.StatusMethodNotAllowed, "GET", path, "")
		untouched(t, r, token.TID)
		r.halt()
	}
}

// The forms of operations do what their commands do. A revocation is asked for twice.
func TestConsoleOperates(t *testing.T) {
	cfg, _ := devConfig(t)
	r := startUnchanged(t, cfg)
	token := tokenOf(t, r, "wallet.read")
	b := newBrowser(t, r)
	b.enter(r, true)
	asked := b.wants(http.StatusOK, "POST", "/console/operations/revoke", "form="+b.form()+"&id="+token.TID)
	if !strings.Contains(asked, `name="sure" value="yes"`) || !strings.Contains(asked, "ronbox token revoke "+token.TID) {
		t.Errorf("the page does not ask again: %s", asked)
	}
	untouched(t, r, token.TID)
	forms := operationForms(token.TID)
	delete(forms, "drain") // comes last
	for name, fields := range forms {
		b.wants(http.StatusSeeOther, "POST", "/console/operations/"+name, "form="+b.form()+fields)
		if name == "reload" { // which also takes back the level
			b.wants(http.StatusSeeOther, "POST", "/console/operations/level", "form="+b.form()+"&level=debug")
		}
	}
	list, err := r.socket().Snapshots(t.Context())
	must(t, err)
	level, err := r.socket().LogLevel(t.Context())
	must(t, err)
	if len(list.Snapshots) != 1 || !list.Snapshots[0].Verified || level.Level != "debug" || !revoked(t, r, token.TID) {
		t.Errorf("snapshots %+v, level %s, revoked %v", list.Snapshots, level.Level, revoked(t, r, token.TID))
	}
	text := b.wants(http.StatusOK, "GET", "/console/operations", "")
	for _, want := range []string{list.Snapshots[0].Name, "<option selected>debug", "ronbox debug log-level"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	b.wants(http.StatusBadRequest, "POST", "/console/operations/level", "form="+b.form()+"&level=loud")
	b.wants(http.StatusBadRequest, "POST", "/console/operations/revoke", "form="+b.form()+"&sure=yes")
	r.halt()
}

// The form that stops the node asks again first.
func TestConsoleStopsTheNode(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	b.enter(r, true)
	asked := b.wants(http.StatusOK, "POST", "/console/operations/drain", "form="+b.form())
	if !strings.Contains(asked, `name="sure" value="yes"`) || !strings.Contains(asked, "ronbox drain") {
		t.Errorf("the page does not ask again: %s", asked)
	}
	b.wants(http.StatusAccepted, "POST", "/console/operations/drain", "form="+b.form()+"&sure=yes")
	r.halt()
}

// A session of a token is told which scope it lacks. With the scope it also needs admin_on_tcp, as
// the token itself does.
func TestConsoleFormsOfAToken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scopes string
		onTCP  bool
		status int
		says   string
	}{
		{"node.read", true, http.StatusForbidden, "This needs the scope node."},
		{"node.admin", false, http.StatusForbidden, "server.admin_on_tcp"},
		{"node.admin", true, http.StatusSeeOther, ""},
	} {
		cfg, _ := devConfig(t)
		cfg.Server.AdminOnTCP = tt.onTCP
		r := startUnchanged(t, cfg)
		victim, token := tokenOf(t, r, "wallet.read"), tokenOf(t, r, tt.scopes)
		b := newBrowser(t, r)
		b.wants(http.StatusSeeOther, "POST", "/console/enter", "changes=1&token="+token.Token)
		forms := operationForms(victim.TID)
		if tt.status == http.StatusSeeOther {
			delete(forms, "drain") // the others need a node that runs
		}
		for name, fields := range forms {
			text := b.wants(tt.status, "POST", "/console/operations/"+name, "form="+b.form()+fields)
			if !strings.Contains(text, tt.says) {
				t.Errorf("%s of a token with %s: %s", name, tt.scopes, text)
			}
		}
		if tt.status != http.StatusSeeOther {
			untouched(t, r, victim.TID)
		}
		r.halt()
	}
}
