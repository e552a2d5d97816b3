package httpapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

func TestAdminIsNotOnTCPUnlessConfigured(t *testing.T) {
	for _, onTCP := range []bool{false, true} {
		r := newRig(t, func(c *Settings, _ *Deps) { c.Server.AdminOnTCP = onTCP })
		for _, route := range r.adminRoutes() {
			body := ""
			if route.Body != NoBody {
				body = `{}`
			}
			path := strings.NewReplacer(":kid", "k1", ":profile", "heap").Replace(route.Pattern)
			method := route.Method
			if route.Class == ClassStream {
				method = http.MethodHead // answers and ends
			}
			anon, held := r.do(method, path, body, nil), r.do(method, path, body, writer)
			if !onTCP || route.Socket {
				if anon.Code != 404 || held.Code != 404 {
					t.Errorf("on TCP %v: %s %s: %d, with a token %d, want 404", onTCP, route.Method, route.Pattern, anon.Code, held.Code)
				}
			} else if anon.Code != 401 || held.Code >= 401 {
				t.Errorf("on TCP %v: %s %s: %d, with a token %d", onTCP, route.Method, route.Pattern, anon.Code, held.Code)
			}
		}
	}
}

func TestSocketPeerWithATokenIsHeldToIt(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		auth   string
		status int
	}{{"", 201}, {"Bearer good", 201}, {"Bearer bad", 403}, {"Bearer forged", 401}} {
		h := header{}
		if tt.auth != "" {
			h["Authorization"] = tt.auth
		}
		if w := r.socket(http.MethodPost, "/registry/commit/"+proposal, "", h); w.Code != tt.status {
			t.Errorf("as %q: %d, want %d", tt.auth, w.Code, tt.status)
		}
	}
	if a := r.reg.actor; a.CapID != "tid" || a.UID == nil || *a.UID != 7 {
		t.Errorf("actor = %+v, want token and uid", a)
	}
}

func TestAdminAnswers(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "status", "", 200, `"phase":"running"`},
		{"GET", "db/info", "", 200, `"file":"ronbox.db"`},
		{"POST", "db/accept-restore", "", 204, ""},
		{"POST", "tokens", `{"scopes":["a","b"]}`, 201, `"token":"a+b"`},
		{"POST", "tokens", `{"ttl":"1h"}`, 400, `"field":"scopes"`},
		{"POST", "drain", `{"reason":"upgrade"}`, 202, `{}`},
		{"POST", "drain", `{"reason":1}`, 400, `"field":"reason"`},
		{"POST", "db/snapshot", `{"dir":"relative"}`, 400, `"field":"dir"`},
		{"POST", "registry/genesis", `{"payload":{},"approvals":[` + approvalBody + `]}`, 201, `"version":1`},
		{"POST", "registry/genesis", `{}`, 400, `"field":"payload"`},
	} {
		w := r.socket(tt.method, "/admin/v1/"+tt.path, tt.body, nil)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if reason := <-r.node.drained; reason != "upgrade" {
		t.Errorf("drained for %q", reason)
	}
}

func TestDrainNeedsNoBody(t *testing.T) {
	r := newRig(t)
	if w := r.socket(http.MethodPost, "/admin/v1/drain", "", nil); w.Code != http.StatusAccepted || <-r.node.drained != "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAdminRefusals(t *testing.T) {
	r := newRig(t)
	r.node.err = auth.ErrSpec
	if w := r.socket(http.MethodPost, "/admin/v1/tokens", `{"scopes":["x"]}`, nil); w.Code != http.StatusBadRequest {
		t.Errorf("a token that cannot be: %d", w.Code)
	}
	r.node.err = &fs.PathError{Op: "mkdir", Path: "/d", Err: syscall.ENOTDIR}
	w := r.socket(http.MethodPost, "/admin/v1/db/snapshot", `{"dir":"/d"}`, nil)
	if p := problemIn(t, w.Body.String()); w.Code != http.StatusBadRequest || p.Detail != "dir: mkdir: not a directory" {
		t.Errorf("a directory that cannot be: %d %+v", w.Code, p)
	}
	r.node.err = store.ErrPoisoned
	if w := r.socket(http.MethodGet, "/admin/v1/db/info", "", nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("poisoned: %d", w.Code)
	}
}

func TestSnapshotTellsProgressThenTheEnd(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		steps  int
		err    error
		status int
		last   func(wire.SnapshotLine) bool
	}{
		{"done", 3, nil, 200, func(l wire.SnapshotLine) bool { return l.Finished() && l.File == "/d/s.db" && l.Seq == 7 }},
		{"done at once", 0, nil, 200, wire.SnapshotLine.Finished},
		{"fails midway", 3, store.ErrFull, 200, func(l wire.SnapshotLine) bool { return l.Problem != nil && l.Problem.Reason == "store_full" }},
		{"fails at once", 0, errors.New("no such thing"), 500, nil},
		{"disk is full", 3, fmt.Errorf("snapshot: %w", &fs.PathError{Op: "write", Path: "/d/x", Err: syscall.ENOSPC}), 200, func(l wire.SnapshotLine) bool {
			return l.Problem != nil && l.Problem.Detail == "dir: write: no space left on device"
		}},
	} {
		r := newRig(t)
		r.node.steps, r.node.err = tt.steps, tt.err
		w := r.socket(http.MethodPost, "/admin/v1/db/snapshot", `{"dir":"/d"}`, nil)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d", tt.doc, w.Code, tt.status)
		}
		if tt.last == nil {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
		var first, last wire.SnapshotLine
		if err := errors.Join(json.Unmarshal([]byte(lines[0]), &first), json.Unmarshal([]byte(lines[len(lines)-1]), &last)); err != nil {
			t.Fatal(err)
		}
		if tt.steps > 0 && (first.Done != 1 || first.Total != 3 || len(lines) != 2) || !tt.last(last) {
			t.Errorf("%s: lines %q", tt.doc, lines)
		}
	}
}

func TestSnapshotProgressIsPaced(t *testing.T) {
	n := newLines(&call{w: &recorder{header: http.Header{}}, r: newRequest(t), live: newRig(t).live.Load()})
	for i := range int64(1000) {
		n.progress(wire.SnapshotLine{Done: i, Total: 1000})
	}
	if got := strings.Count(n.c.w.(*recorder).body.String(), "\n"); got > 20 {
		t.Errorf("%d lines for steps that took no time", got)
	}
}
