package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	nodeapi "ronbox/httpapi/wire/node"
)

// A page lists the sessions only to those that may read them, whatever else they may read.
func TestConsoleShowsSessionsByCaveat(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	first := newBrowser(t, r)
	first.enter(r, false)
	list, err := r.socket().Sessions(t.Context())
	must(t, err)
	id := list.Sessions[0].ID
	if text := first.wants(http.StatusOK, "GET", "/console/operations", ""); !strings.Contains(text, id) {
		t.Error("the page does not list its own session")
	}
	for caveat, shown := range map[string]bool{
		"path = /admin/v1/audit": false, "path = /admin/v1/sessions": true, "ip = 127.0.0.0/8": true,
	} {
		token, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{
			Sub: "viewer", Scopes: []string{"node.read"}, Caveats: []string{caveat},
		})
		must(t, err)
		b := newBrowser(t, r)
		b.wants(http.StatusSeeOther, "POST", "/console/enter", "token="+token.Token)
		if text := b.wants(http.StatusOK, "GET", "/console/operations", ""); strings.Contains(text, id) != shown {
			t.Errorf("%s: the sessions are shown: %v, want %v", caveat, !shown, shown)
		}
	}
	r.halt()
}

// A session that entered with a code ends another one as the admin route does, with one row on the
// audit chain.
func TestConsoleEndsSessions(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	other, looks, ends := newBrowser(t, r), newBrowser(t, r), newBrowser(t, r)
	other.enter(r, false)
	list, err := r.socket().Sessions(t.Context())
	must(t, err)
	id := list.Sessions[0].ID
	looks.enter(r, false)
	ends.enter(r, true)
	looks.wants(http.StatusForbidden, "POST", "/console/operations/end", "form="+looks.form()+"&id="+id)
	other.wants(http.StatusOK, "GET", "/console/wallet", "")
	for range 2 { // the second time there is no such session
		ends.wants(http.StatusSeeOther, "POST", "/console/operations/end", "form="+ends.form()+"&id="+id)
	}
	other.wants(http.StatusSeeOther, "GET", "/console/wallet", "")
	page, err := r.socket().Audit(t.Context(), 1, 100)
	must(t, err)
	rows := 0
	for _, row := range page.Rows {
		if row.Event == "console.ended" && row.Detail["session"] == id {
			rows++
		}
	}
	if rows != 1 {
		t.Errorf("%d rows of the end on the audit chain", rows)
	}
	r.halt()
}

// The requests that a page makes of the node are not among those that the series count.
func TestPagesDoNotCountTheirRequests(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	b.enter(r, false)
	at := time.Now()
	s := r.freshSeries(&at)
	const pages = 5
	for range pages {
		b.wants(http.StatusOK, "GET", "/console/", "")
	}
	at = at.Add(time.Second)
	s.Turn()
	for _, one := range s.List().Series {
		if one.Name == "requests_per_s" && *one.Values[0] != pages {
			t.Errorf("%v requests of %d pages", *one.Values[0], pages)
		}
	}
	r.halt()
}
