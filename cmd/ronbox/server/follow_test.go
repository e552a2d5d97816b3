package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/registry"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// initFollower makes a node that follows the node at a URL.
func initFollower(t *testing.T, hub, genesis string) (*config.Config, error) {
	t.Helper()
	cfg := newConfig(t)
	cfg.Registry.Follow.URL, cfg.Registry.Follow.Genesis = hub, genesis
	res, err := Init(t.Context(), cfg, initdir.Options{})
	if err != nil {
		return nil, err
	}
	if res.Follows != hub || res.Genesis != genesis || exists(cfg.Path(config.LogKeyName)) {
		t.Errorf("init --follow: %+v", res)
	}
	return loaded(t, cfg), nil
}

// A node that follows another over HTTP has its HEAD and its checkpoint, also after the hub was
// gone and after a restart of its own, and refuses writes whatever they contain.
func TestFollowerOverHTTP(t *testing.T) {
	t.Parallel()
	hubConfig, res := devConfig(t)
	hub := start(t, hubConfig)
	url, key := "http://"+hub.Addr(), signer(t, hubConfig)
	cfg, err := initFollower(t, url, res.Genesis)
	must(t, err)
	r := start(t, cfg)
	equal := func() {
		t.Helper()
		r.await("the HEAD and the checkpoint of the hub", func() bool {
			theirs, err := hub.services.Registry().LatestCheckpoint()
			ours, errOurs := r.services.Registry().LatestCheckpoint()
			return err == nil && errOurs == nil && bytes.Equal(ours.Note, theirs.Note) &&
				r.services.Registry().Head().Head == hub.services.Registry().Head().Head
		})
	}
	c := hub.socket()
	for v := uint64(2); v < 6; v++ {
		hub.mustPut(c, key, v, fmt.Sprint("s", v))
	}
	equal()
	if err := r.Catalog().Check(); err != nil {
		t.Error(err)
	}
	r.sound()

	note, err := r.tcp().Checkpoint(t.Context())
	theirs, errTheirs := hub.tcp().Checkpoint(t.Context())
	if err != nil || errTheirs != nil || !bytes.Equal(note, theirs) {
		t.Errorf("the served checkpoint differs: %v, %v", err, errTheirs)
	}
	wantRefusals(t, r, url)

	hubConfig.Server.Bind = hub.Addr()
	hub.halt()
	hub = start(t, hubConfig)
	hub.mustPut(hub.socket(), key, 6, "s6")
	equal()
	r.halt()
	hub.mustPut(hub.socket(), key, 7, "s7")
	r = start(t, cfg)
	equal()
}

// wantRefusals sends writes to a follower, all of them malformed.
func wantRefusals(t *testing.T, r *rig, hub string) {
	t.Helper()
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
	must(t, err)
	for _, call := range []string{
		"POST /registry/proposals", "POST /registry/approvals/x", "POST /registry/commit/x", "DELETE /registry/proposals/x",
	} {
		method, path, _ := strings.Cut(call, " ")
		for _, body := range []io.Reader{nil, strings.NewReader("{")} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.Addr()+path, body)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			text, err := io.ReadAll(res.Body)
			must(t, errors.Join(err, res.Body.Close()))
			if res.StatusCode != http.StatusConflict || !bytes.Contains(text, []byte(`"reason":"follower"`)) ||
				!bytes.Contains(text, []byte(hub)) {
				t.Errorf("%s: %d %s", call, res.StatusCode, text)
			}
		}
	}
	_, err = r.socket().Genesis(t.Context(), []byte(`{}`), nil)
	if p := problem(t, err); p.Reason != "follower" {
		t.Errorf("genesis: %v", err)
	}
	w, err := r.socket().HighWater(t.Context())
	if err != nil || w.Follow == nil || w.Follow.State != follow.OK || w.Follow.Hub != hub {
		t.Errorf("the status of the follower: %+v, %v", w.Follow, err)
	}
	res, err := http.Get("http://" + r.Addr() + "/registry/head")
	must(t, err)
	if must(t, res.Body.Close()); res.Header.Get("X-Registry-Age") == "" {
		t.Errorf("no age: %v", res.Header)
	}
	http.DefaultClient.CloseIdleConnections()
}

// init --follow looks at the hub: a wrong genesis is refused, a hub that does not answer is
// followed later.
func TestInitLooksAtTheHub(t *testing.T) {
	hubConfig, res := devConfig(t)
	hub := start(t, hubConfig)
	url := "http://" + hub.Addr()
	wrong := strings.Repeat("0", 63) + "1"
	_, err := initFollower(t, strings.Replace(url, "http:", "https:", 1), res.Genesis)
	if refused, ok := errors.AsType[*wiring.HubError](err); !ok || !strings.Contains(refused.Reason, "allow_private") {
		t.Errorf("a private address: %v", err)
	}
	_, err = initFollower(t, url, "b3:"+wrong)
	if refused, ok := errors.AsType[*wiring.HubError](err); !ok || !strings.Contains(refused.Reason, res.Genesis) {
		t.Errorf("another genesis: %v", err)
	}
	hub.mustPut(hub.socket(), signer(t, hubConfig), 2, "s2")
	second, err := hub.tcp().Payload(t.Context(), 2)
	must(t, err)
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/payload") {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(second)
	}))
	defer liar.Close()
	_, err = initFollower(t, liar.URL, b3.Sum(second).String())
	if refused, ok := errors.AsType[*wiring.HubError](err); !ok || !strings.Contains(refused.Reason, "no signers") {
		t.Errorf("a later version as the genesis: %v", err)
	}
	hub.halt()
	cfg := newConfig(t)
	cfg.Registry.Follow.URL, cfg.Registry.Follow.Genesis = url, res.Genesis
	cfg.Fleet.AllowPrivate = []string{"10.0.0.0/8", "fd00::/8"} // the hub may be in one of them
	var unheard error
	o := initdir.Options{Unheard: func(why error) { unheard = why }}
	if _, err := Init(t.Context(), cfg, o); err != nil || unheard == nil {
		t.Errorf("a hub that is not there: %v, told %v", err, unheard)
	}
	written := loaded(t, cfg)
	if got := written.Fleet.AllowPrivate; !slices.Equal(got, cfg.Fleet.AllowPrivate) {
		t.Errorf("fleet.allow_private is %q in the file", got)
	}
	r := start(t, written)
	ready := r.board.Report("registry", "")
	if !ready.WriteReady || ready.Causes["registry.follow_ok"] == "" {
		t.Errorf("before anything was read: %+v", ready)
	}
}

// A follower of a pruned hub begins at its horizon, over HTTP, and goes on from there.
func TestFollowerOfAPrunedHub(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("engines/registry runs followers of a pruned hub: left to the run without -race")
	}
	hubConfig, res := devConfig(t)
	hubConfig.Registry.Limits.RPS = 0
	hubConfig.Registry.Retention = registry.RetentionConfig{
		Policy: retain.ByCount, MaxCount: 1, MaxAge: hubConfig.Registry.Retention.MaxAge,
	}
	hub := start(t, hubConfig)
	key, c := signer(t, hubConfig), hub.socket()
	const versions = 520
	for v := uint64(2); v <= versions; v++ {
		hub.mustPut(c, key, v, fmt.Sprint("s", v%7))
	}
	_, err := hub.services.Registry().CheckpointNow(t.Context())
	must(t, err)
	hub.await("the hub to prune", func() bool { return hub.services.Registry().Head().MinVersion == 257 })
	cfg, err := initFollower(t, "http://"+hub.Addr(), res.Genesis)
	must(t, err)
	r := start(t, cfg)
	head := func(r *rig) any { return r.services.Registry().Head().Head }
	r.await("HEAD of the hub", func() bool { return head(r) == head(hub) })
	if first := r.services.Registry().Head().MinVersion; first != 257 {
		t.Errorf("the copy begins at version %d", first)
	}
	r.sound()
	at, err := r.tcp().Horizon(t.Context())
	if err != nil || at.MinVersion != 257 || at.Statement == "" || !slices.Equal(at.Kept, []uint64{1}) {
		t.Errorf("%+v, %v", at, err)
	}
	hub.mustPut(c, key, versions+1, "more")
	r.await("the next version", func() bool { return r.services.Registry().Head().Head.Version == versions+1 })

	hub.halt()
	o := initdir.Options{FromExport: exportOf(t, hubConfig)}
	cfg = newConfig(t)
	cfg.Registry.Follow.URL, cfg.Registry.Follow.Genesis = "http://"+hub.Addr(), res.Genesis
	_, err = Init(t.Context(), cfg, o)
	must(t, err)
	began := start(t, loaded(t, cfg))
	if head := began.services.Registry().Head(); head.Head.Version != versions+1 || head.MinVersion != 257 {
		t.Errorf("from the export: %+v", head.Doc())
	}
	began.sound()
	cfg = newConfig(t)
	cfg.Registry.Follow.URL, cfg.Registry.Follow.Genesis = "http://"+hub.Addr(), b3.Sum(nil).String()
	_, err = Init(t.Context(), cfg, o)
	if _, refused := errors.AsType[*wiring.HubError](err); !refused || exists(cfg.Path(config.DatabaseName)) {
		t.Errorf("from the export of another log: %v", err)
	}
}

// exportOf writes an export of the log of a stopped node.
func exportOf(t *testing.T, cfg *config.Config) string {
	t.Helper()
	dir := t.TempDir()
	file, err := store.OpenReader(cfg.Path(config.DatabaseName))
	must(t, err)
	err = file.View(t.Context(), func(r store.Reader) error {
		_, err := export.Write(t.Context(), dir, tables.NewSource(r), func(uint64, uint64) {})
		return err
	})
	must(t, errors.Join(err, file.Close()))
	return dir
}
