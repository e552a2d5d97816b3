package appliance

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// A token that is revoked is void before the revocation is answered, whichever way it is revoked.
func TestRevokedBeforeTheReply(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c := r.socket()
	for _, tt := range []struct {
		doc  string
		what func(wire.Token, wire.KeyList) wire.RevokeRequest
	}{
		{"by its id", func(k wire.Token, _ wire.KeyList) wire.RevokeRequest { return wire.RevokeRequest{TID: k.TID} }},
		{"by its tenant", func(wire.Token, wire.KeyList) wire.RevokeRequest { return wire.RevokeRequest{Tenant: "acme"} }},
		{"by its key", func(_ wire.Token, k wire.KeyList) wire.RevokeRequest { return wire.RevokeRequest{Kid: k.Active} }},
		{"with all", func(wire.Token, wire.KeyList) wire.RevokeRequest { return wire.RevokeRequest{All: true} }},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			token, err := c.Mint(t.Context(), wire.MintRequest{Sub: "me", Tenant: "acme", Scopes: []string{"registry.propose"}})
			must(t, err)
			keys, err := c.Keys(t.Context())
			must(t, err)
			holder := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token})
			if _, err := holder.Propose(t.Context(), draft(2, "x"), ""); err != nil {
				t.Fatalf("before: %v", err)
			}
			done, err := c.Revoke(t.Context(), tt.what(token, keys))
			if err != nil || done.Already || !done.Until.After(time.Now()) {
				t.Fatalf("%+v, %v", done, err)
			}
			_, err = holder.Propose(t.Context(), draft(2, "y"), "")
			if p := problem(t, err); p.Status != http.StatusUnauthorized {
				t.Errorf("after: %+v", p)
			}
			list, err := c.Tokens(t.Context(), "", 100)
			must(t, err)
			i := slices.IndexFunc(list.Tokens, func(i wire.TokenInfo) bool { return i.TID == token.TID })
			if i < 0 || !list.Tokens[i].Revoked || list.Tokens[i].Sub != "me" {
				t.Errorf("listed as %+v", list.Tokens)
			}
			verdict, err := c.VerifyToken(t.Context(), wire.VerifyRequest{Token: token.Token, Scope: "registry.propose", Service: "registry"})
			if err != nil || verdict.Allowed || len(verdict.Failed) == 0 && verdict.Reason == "" {
				t.Errorf("verdict %+v, %v", verdict, err)
			}
		})
	}
	if _, err := c.Mint(t.Context(), wire.MintRequest{Sub: "me", Tenant: "acme", Scopes: []string{"registry.propose"}}); err != nil {
		t.Errorf("a new token after all that: %v", err)
	}
	for _, q := range []wire.RevokeRequest{{TID: "nonsense"}, {Kid: "nonsense"}, {Tenant: strings.Repeat("x", 300)}, {}, {TID: "x", All: true}} {
		if _, err := c.Revoke(t.Context(), q); problem(t, err).Status != http.StatusBadRequest {
			t.Errorf("%+v: %v", q, err)
		}
	}
	r.halt()
	for _, want := range []string{"auth.token_minted", "auth.revoked"} {
		if rows := auditRows(t, cfg); !slices.Contains(rows, want) {
			t.Errorf("no audit row %s in %v", want, rows)
		}
	}
	again := start(t, cfg) // what was revoked stays so
	if list, err := again.socket().Tokens(t.Context(), "", 100); err != nil || len(list.Tokens) < 5 || !list.Tokens[0].Revoked {
		t.Errorf("after a restart: %+v, %v", list, err)
	}
	again.halt()
}

// While keys overlap, tokens of both are good; a retired one's are not.
func TestKeysOverRotation(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c := r.socket()
	before, err := c.Keys(t.Context())
	must(t, err)
	fresh, err := c.RotateKey(t.Context())
	if err != nil || fresh.State != kidActive || fresh.Kid == before.Active || fresh.RotateAt.Sub(fresh.CreatedAt) != 30*24*time.Hour {
		t.Fatalf("%+v, %v", fresh, err)
	}
	if _, err := r.tcp().Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("a token of the key before: %v", err)
	}
	keys, err := c.Keys(t.Context())
	if err != nil || len(keys.Keys) != 2 || keys.Active != fresh.Kid || keys.Keys[1].State != kidVerify || keys.Keys[1].VerifyUntil.IsZero() {
		t.Errorf("%+v, %v", keys, err)
	}
	if _, err := c.RetireKey(t.Context(), fresh.Kid); problem(t, err).Status != http.StatusConflict {
		t.Errorf("the active key: %v", err)
	}
	if _, err := c.RetireKey(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"); problem(t, err).Status != http.StatusNotFound {
		t.Errorf("a key that is none: %v", err)
	}
	if old, err := c.RetireKey(t.Context(), before.Active); err != nil || old.State != kidRetired {
		t.Errorf("%+v, %v", old, err)
	}
	if _, err := r.tcp().Propose(t.Context(), draft(2, "y"), ""); problem(t, err).Status != http.StatusUnauthorized {
		t.Errorf("a token of the retired key: %v", err)
	}
	r.halt()
}

// Who may mint and is no administrator mints nothing that reaches the node itself.
func TestMintingIsNoWayUp(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	minter, err := r.socket().Mint(t.Context(), wire.MintRequest{Sub: "minter", Scopes: []string{"node.token"}})
	must(t, err)
	c := r.client(client.Options{URL: "http://" + r.Addr(), Token: minter.Token})
	if _, err := c.Mint(t.Context(), wire.MintRequest{Sub: "x", Scopes: []string{"registry.propose", "node.admin"}}); problem(t, err).Status != http.StatusForbidden {
		t.Errorf("node.admin by node.token: %v", err)
	}
	if _, err := c.Mint(t.Context(), wire.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, Caveats: []string{"max_bytes <= 10"}}); err != nil {
		t.Errorf("what it may mint: %v", err)
	}
	r.halt()
}

// The node tells what it runs, holds and writes.
func TestLiveView(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c := r.socket()
	list, err := c.Tasks(t.Context())
	must(t, err)
	for _, want := range []string{"node.supervisor", "node.http", "node.admin_http", "node.reloader", "node.janitor", "node.health_gate",
		"node.log_writer", "store.committer", "registry.pipeline"} {
		if !slices.ContainsFunc(list.Tasks, func(i wire.TaskInfo) bool { return i.Service+"."+i.Name == want && i.State == "running" }) {
			t.Errorf("%s does not run: %+v", want, list.Tasks)
		}
	}
	queues, err := c.Queues(t.Context())
	must(t, err)
	for _, want := range []string{"registry.cfg_reload_tx", "node.audit_tx", "node.cfg", "node.log", "registry.proposals_tx", "store.control"} {
		if !slices.ContainsFunc(queues.Queues, func(i wire.QueueInfo) bool { return i.Service+"."+i.Name == want && i.Cap > 0 }) {
			t.Errorf("no %s in %+v", want, queues.Queues)
		}
	}
	r.mustPut(c, signer(t, cfg), 2, "x")
	stats, err := c.DBStats(t.Context())
	if err != nil || stats.Bytes == 0 || stats.Commands == 0 || len(stats.Buckets) < 5 {
		t.Errorf("%+v, %v", stats, err)
	}
	level, err := c.SetLogLevel(t.Context(), wire.LogLevel{Level: "debug", Service: "registry"})
	if err != nil || level.Level != "debug" || r.levels.Level("registry") != "debug" || r.levels.Level("") != "info" {
		t.Errorf("%+v, %v", level, err)
	}
	if _, err := c.SetLogLevel(t.Context(), wire.LogLevel{Level: "debug", Service: "nobody"}); problem(t, err).Status != http.StatusBadRequest {
		t.Errorf("a service that is none: %v", err)
	}
	r.halt()
}

// The audit chain is read in pages, and followed live.
func TestAuditView(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, sub := r.socket(), r.SubscribeAudit("test")
	defer sub.Close()
	for range 3 {
		_, err := c.Mint(t.Context(), wire.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}})
		must(t, err)
	}
	all, err := c.Audit(t.Context(), 1, 100)
	if err != nil || all.First != 1 || int(all.Last) != len(all.Rows) || all.Head != all.Rows[len(all.Rows)-1].Hash || all.Next != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	var paged []wire.AuditRow
	for from := uint64(1); from != 0; {
		page, err := c.Audit(t.Context(), from, 2)
		must(t, err)
		paged, from = append(paged, page.Rows...), page.Next
	}
	if len(paged) != len(all.Rows) {
		t.Errorf("%d rows in pages, %d at once", len(paged), len(all.Rows))
	}
	for i, row := range paged[1:] {
		if row.Prev != paged[i].Hash {
			t.Errorf("row %d does not follow", row.Seq)
		}
	}
	for i := range 3 {
		row, _, err := sub.Recv(t.Context())
		want := all.Rows[len(all.Rows)-3+i]
		if err != nil || row.Seq != want.Seq || row.Hash != want.Hash {
			t.Errorf("live %+v, %v, want %+v", row, err, want)
		}
	}
	r.halt()
}

// A running node's file is checked on a copy, which is gone afterwards.
func TestCheckDB(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	stages := map[string]bool{}
	last, err := r.socket().CheckDB(t.Context(), func(l wire.CheckLine) { stages[l.Stage] = true })
	if err != nil || !last.Sound() || len(last.Findings) > 0 {
		t.Errorf("%+v, %v", last, err)
	}
	left, err := filepath.Glob(cfg.Path("check-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	snap, err := r.socket().Snapshot(t.Context(), wire.SnapshotRequest{Dir: t.TempDir(), Compact: true}, nil)
	if err != nil {
		t.Errorf("compact: %+v, %v", snap, err)
	}
	for _, dir := range []string{cfg.Path(DatabaseName), "/proc/nowhere/at/all"} {
		if _, err := r.socket().Snapshot(t.Context(), wire.SnapshotRequest{Dir: dir}, nil); problem(t, err).Status != http.StatusBadRequest {
			t.Errorf("into %s: %v", dir, err)
		}
	}
	r.halt()
}

func TestProfiles(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	for _, name := range []string{"heap", "allocs", "goroutine", "threadcreate", "block", "mutex", "profile", "trace", "flight"} {
		var out bytes.Buffer
		if err := r.socket().Profile(t.Context(), name, time.Second, &out); err != nil || out.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", name, out.Len(), err)
		}
	}
	if !r.profiling.CompareAndSwap(false, true) {
		t.Fatal("a profile goes on")
	}
	var out bytes.Buffer
	if err := r.socket().Profile(t.Context(), "trace", time.Second, &out); problem(t, err).Status != http.StatusConflict {
		t.Errorf("a second one: %v", err)
	}
	r.profiling.Store(false)
	r.halt()
}

// A token made beside a stopped node is good once it runs; beside a running one it is refused.
func TestMintOffline(t *testing.T) {
	cfg, _ := devConfig(t)
	token, err := MintOffline(t.Context(), cfg, Build{}, wire.MintRequest{Sub: "ops", Scopes: []string{"registry.propose"}})
	must(t, err)
	if seen, err := auth.Inspect(token.Token); err != nil || seen.Sub != "ops" {
		t.Errorf("%+v, %v", seen, err)
	}
	r := start(t, cfg)
	c := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token})
	if _, err := c.Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("the token: %v", err)
	}
	locked := *cfg
	locked.Store.LockTimeout = 0
	if _, err := MintOffline(t.Context(), &locked, Build{}, wire.MintRequest{Sub: "ops", Scopes: []string{"a.b"}}); ExitCode(err) != ExitLocked {
		t.Errorf("beside a running node: %v", err)
	}
	r.halt()
}

// Init writes units that name the binary and the directory.
func TestInitWritesUnits(t *testing.T) {
	cfg := newConfig(t)
	res, err := Init(t.Context(), cfg, InitOptions{Systemd: true})
	must(t, err)
	text, err := os.ReadFile(res.Unit)
	binary, _ := os.Executable()
	if err != nil || !strings.Contains(string(text), binary) || !strings.Contains(string(text), cfg.Node.DataDir) {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := os.Stat(cfg.Path("ronbox-http.socket")); errors.Is(err, os.ErrNotExist) {
		t.Error("no socket unit")
	}
}
