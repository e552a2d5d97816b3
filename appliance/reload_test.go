package appliance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/engines"
	"ronbox/httpapi/wire"
)

// reloadable starts a dev node that reads its file again, and gives what rewrites that file.
func reloadable(t *testing.T) (r *rig, rewrite func(text string)) {
	t.Helper()
	cfg, _ := devConfig(t)
	load := func() (*config.Config, []config.Entry, error) {
		return config.Explain(config.LoadOptions{
			DataDir: cfg.Node.DataDir, Env: calm(),
		})
	}
	rewrite = func(text string) {
		t.Helper()
		must(t, os.WriteFile(cfg.Path(config.FileName), fmt.Appendf(nil, "registry.origin = %q\n%s", cfg.Registry.Origin, text), 0o600))
	}
	_, entries, err := load()
	must(t, err)
	r = launchWith(t, cfg, Options{Load: load, Entries: entries}).begin()
	return r, rewrite
}

// version is the number of the configuration in force.
func (r *rig) version() uint64 {
	now, _ := r.config.Load()
	return now.version
}

// key reads one key as the node shows it.
func (r *rig) key(name string) wire.ConfigKey {
	r.t.Helper()
	show, err := r.socket().Config(r.t.Context())
	must(r.t, err)
	for _, k := range show.Keys {
		if k.Key == name {
			return k
		}
	}
	r.t.Fatalf("no key %s in %+v", name, show)
	return wire.ConfigKey{}
}

// What changed is in force, shown with its place, and on the audit chain; a reload that changes nothing counts no version.
func TestReloadInPlace(t *testing.T) {
	r, rewrite := reloadable(t)
	c := r.socket()
	rewrite("registry.limits.rps = 77\nlog.level = \"debug\"\nauth.default_ttl = \"2h\"\n")
	done, err := c.Reload(t.Context())
	if err != nil || done.Version != 2 || done.Source != r.cfg.Path(config.FileName) || len(done.Changed) != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	if k := r.key("registry.limits.rps"); k.Value != "77" || k.Source != config.FromFile || !strings.Contains(k.Where, config.FileName) {
		t.Errorf("%+v", k)
	}
	if k := r.key("server.bind"); k.Source != config.FromEnv {
		t.Errorf("%+v", k)
	}
	if l := r.LogLevel(); l.Level != "debug" {
		t.Errorf("log level %+v", l)
	}
	token, err := c.Mint(t.Context(), wire.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}})
	if left := time.Until(token.ExpiresAt); err != nil || left < 90*time.Minute {
		t.Errorf("a token of the new default lives %v, %v", left, err)
	}
	if done, err := c.Reload(t.Context()); err != nil || done.Version != 2 || len(done.Changed) != 0 {
		t.Errorf("nothing new: %+v, %v", done, err)
	}
	if got := r.metric("registry_reload_success_total"); got != 2 {
		t.Errorf("%v successes", got)
	}
	if got := r.metric("config_version"); got != 2 {
		t.Errorf("config_version %v", got)
	}
	r.halt()
	for _, e := range auditEvents(t, r.cfg) {
		if e.Event == "config.reloaded" {
			if e.Detail["registry.limits.rps"] != "500 -> 77" || e.Detail["version"] != "2" || e.UID == "" {
				t.Errorf("audit row %+v", e)
			}
			return
		}
	}
	t.Error("no audit row of the reload")
}

// A configuration that cannot be taken leaves the old one in force, names what is wrong, and is counted by why.
func TestBadReload(t *testing.T) {
	r, rewrite := reloadable(t)
	for _, tt := range []struct {
		doc, text, reason string
		keys              []string
	}{
		{"no TOML", "[[[", "parse", nil},
		{"a value out of its range", "registry.sse.max_clients = 0\n", "validate", []string{"registry.sse.max_clients"}},
		{"a key that needs a restart", "registry.queues.proposals = 100\nlog.level = \"debug\"\n", "restart", []string{"registry.queues.proposals"}},
		{"a certificate that is not there", "tls.enabled = true\ntls.cert_path = \"/nowhere/a\"\ntls.key_path = \"/nowhere/b\"\n", "tls", nil},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			before := r.metric("registry_reload_fail_total")
			rewrite(tt.text)
			_, err := r.socket().Reload(t.Context())
			p := problem(t, err)
			if p.Status != http.StatusUnprocessableEntity {
				t.Errorf("%+v", p)
			}
			keys := fmt.Sprint(p.Details["keys"])
			for _, k := range tt.keys {
				if !strings.Contains(keys, k) {
					t.Errorf("%s is not named in %v", k, p.Details)
				}
			}
			if got := r.metric("registry_reload_fail_total", "reason", tt.reason); got != 1 || r.metric("registry_reload_fail_total") != before+1 {
				t.Errorf("%v failures of %s", got, tt.reason)
			}
			if r.version() != 1 || r.LogLevel().Level != "info" {
				t.Errorf("version %d, level %v", r.version(), r.LogLevel())
			}
		})
	}
	if _, err := r.tcp().Head(t.Context()); err != nil {
		t.Errorf("after bad reloads: %v", err)
	}
	rewrite("")
	r.halt()
}

// What cannot be applied now is tried again: a port that is taken is bound once it is free.
func TestReloadIsTriedAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	cfg, _ := devConfig(t)
	calls := 0
	r := launchWith(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) {
		calls++
		next := *cfg
		next.Server.Bind = taken.Addr().String()
		return &next, nil, nil
	}}).begin()
	before := r.Addr()
	_, err = r.Reload(t.Context(), engines.Actor{}, "")
	if err == nil || r.version() != 1 || r.Addr() != before {
		t.Fatalf("a taken port: %v, version %d on %s", err, r.version(), r.Addr())
	}
	if got := r.metric("registry_reload_fail_total", "reason", "bind"); got != 1 {
		t.Errorf("%v failures to bind\n%s", got, r.log)
	}
	must(t, taken.Close())
	r.await("the new port", func() bool { return r.version() == 2 })
	if r.Addr() != taken.Addr().String() || calls != 1 {
		t.Errorf("listens on %s after %d reads", r.Addr(), calls)
	}
	if _, err := r.tcp().Head(t.Context()); err != nil {
		t.Errorf("on the new port: %v", err)
	}
	r.halt()
}

// await waits for something that takes a moment.
func (r *rig) await(what string, is func() bool) {
	r.t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("still waiting for %s\n%s", what, r.log)
		}
	}
}

// A hundred requests at once, by signal and by call, under load: no request of a client is dropped, every caller hears a
// version, and each configuration that was read counts once.
func TestReloadStorm(t *testing.T) {
	cfg, _ := devConfig(t)
	var reads atomic.Int64
	r := launchWith(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) {
		next := *cfg
		next.Registry.Limits.RPS = 1000 + int(reads.Add(1))
		return &next, nil, nil
	}}).begin()
	ctx, stop := context.WithCancel(t.Context())
	var load, storm sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		c := r.socket() // where no network has a share that it could use up
		load.Go(func() {
			for ctx.Err() == nil {
				_, err := c.Head(context.WithoutCancel(ctx))
				if p, refused := errors.AsType[*wire.Problem](err); refused && p.Status == http.StatusTooManyRequests {
					err = nil // an answer too: a fast machine asks for more than it may
				}
				if err != nil {
					t.Errorf("a read in the storm: %v", err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for i := range 100 {
		storm.Go(func() {
			if i%2 == 0 {
				r.Hangup()
				return
			}
			if done, err := r.Reload(t.Context(), engines.Actor{}, ""); err != nil || done.Version < 2 {
				t.Errorf("reload %d: %+v, %v", i, done, err)
			}
		})
	}
	storm.Wait()
	for range 25 { // one after the other, none collapses
		before := r.version()
		if done, err := r.Reload(t.Context(), engines.Actor{}, ""); err != nil || done.Version <= before {
			t.Errorf("after version %d: %+v, %v", before, done, err)
		}
	}
	r.await("the last signal", func() bool { return r.reloads.Len() == 0 && r.version() == uint64(1+reads.Load()) })
	stop()
	load.Wait()
	if got := r.metric("registry_reload_success_total"); got != float64(reads.Load()) || r.metric("registry_reload_fail_total") != 0 {
		t.Errorf("%v successes of %d reads", got, reads.Load())
	}
	t.Logf("%d reads of the configuration for 125 requests, %d answers meanwhile", reads.Load(), answered.Load())
	r.halt()
}

// Into a full queue a newer request goes in the place of the oldest, which gets its answer.
func TestReloadsCollapse(t *testing.T) {
	n := wired(t, newConfig(t), Options{}, &logs{})
	defer n.closeEngines()
	const more = 3
	var waits sync.WaitGroup
	answers := make(chan uint64, reloadCap+more)
	for i := range reloadCap + more {
		waits.Go(func() {
			done, err := n.Reload(t.Context(), engines.Actor{}, fmt.Sprint(i))
			if err != nil {
				t.Error(err)
			}
			answers <- done.Version
		})
	}
	stands := func() (all int) {
		for range n.reloads.Len() {
			r := <-n.reloads.C()
			all += 1 + len(r.older)
			must(t, n.askReload(r))
		}
		return all
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for stands() != reloadCap+more {
		<-tick.C
	}
	newest := <-n.reloads.C()
	n.collapse(newest)
	newest.answer(wire.Reloaded{Version: 7}, nil)
	waits.Wait()
	close(answers)
	for v := range answers {
		if v != 7 {
			t.Errorf("answered with version %d", v)
		}
	}
}

// A node that was started without a way to read its configuration again says so.
func TestReloadWithoutSource(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.Hangup()
	_, err := r.socket().Reload(t.Context())
	if p := problem(t, err); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("%+v", p)
	}
	r.halt()
}
