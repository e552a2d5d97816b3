package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

// reloadable starts a dev node that reads its file on a reload, and returns a function that
// rewrites the file.
func reloadable(t *testing.T) (r *rig, rewrite func(text string)) {
	t.Helper()
	cfg, _ := devConfig(t)
	load := func() (*config.Config, []config.Entry, error) {
		return config.Explain(config.LoadOptions{DataDir: cfg.Node.DataDir, Env: calm()})
	}
	rewrite = func(text string) {
		t.Helper()
		must(
			t,
			os.WriteFile(
				cfg.Path(config.FileName),
				fmt.Appendf(nil, "registry.origin = %q\nrewarder.policy_trust_keys = %q\n%s", cfg.Registry.Origin,
					cfg.Rewarder.TrustKeys, text),
				0o600,
			),
		)
	}
	_, entries, err := load()
	must(t, err)
	r = launchWith(t, cfg, Options{Load: load, Entries: entries}).begin()
	return r, rewrite
}

// version returns the number of the configuration in force.
func (r *rig) version() uint64 {
	now, _ := r.config.Load()
	return now.version
}

// key reads one key as the node shows it.
func (r *rig) key(name string) nodeapi.ConfigKey {
	r.t.Helper()
	show, err := r.socket().Config(r.t.Context())
	must(r.t, err)
	for _, k := range show.Keys {
		if k.Key == name {
			return k
		}
	}
	r.t.Fatalf("no key %s in %+v", name, show)
	return nodeapi.ConfigKey{}
}

// Changed keys are in force, shown with their source, and audited. A reload without changes keeps
// the version.
func TestReloadInPlace(t *testing.T) {
	r, rewrite := reloadable(t)
	c := r.socket()
	rewrite("registry.limits.rps = 77\nlog.level = \"debug\"\nauth.default_ttl = \"2h\"\nstore.snapshot_every = \"1d\"\n")
	done, err := c.Reload(t.Context())
	if err != nil || done.Version != 2 || done.Source != r.cfg.Path(config.FileName) || len(done.Changed) != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	if k := r.key("registry.limits.rps"); k.Value != "77" || k.Source != config.FromFile ||
		!strings.Contains(k.Where, config.FileName) {
		t.Errorf("%+v", k)
	}
	if k := r.key("server.bind"); k.Source != config.FromEnv {
		t.Errorf("%+v", k)
	}
	if l := r.LogLevel(); l.Level != "debug" {
		t.Errorf("log level %+v", l)
	}
	token, err := c.Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}})
	if left := time.Until(token.ExpiresAt.Time); err != nil || left < 90*time.Minute {
		t.Errorf("a token of the new default lives %v, %v", left, err)
	}
	if done, err := c.Reload(t.Context()); err != nil || done.Version != 2 || len(done.Changed) != 0 {
		t.Errorf("nothing new: %+v, %v", done, err)
	}
	if got := r.metric("registry_reload_success_total"); got != 2 {
		t.Errorf("%v successes", got)
	}
	if got, same := r.metric("config_version"), r.metric("registry_config_version"); got != 2 || same != 2 {
		t.Errorf("config_version %v, registry_config_version %v", got, same)
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

// An invalid configuration leaves the old one in force, is refused with an error that names the
// faulty key, and is counted by reason.
func TestBadReload(t *testing.T) {
	r, rewrite := reloadable(t)
	for _, tt := range []struct {
		doc, text, reason string
		keys              []string
	}{
		{"no TOML", "[[[", "parse", nil},
		{"a value out of its range", "registry.sse.max_clients = 0\n", "validate",
			[]string{"registry.sse.max_clients"}},
		{"a key that needs a restart", "registry.queues.proposals = 100\nlog.level = \"debug\"\n", "restart",
			[]string{"registry.queues.proposals"}},
		{"a certificate that is not there",
			"tls.enabled = true\ntls.cert_path = \"/nowhere/a\"\ntls.key_path = \"/nowhere/b\"\n", "tls", nil},
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
			if got := r.metric("registry_reload_fail_total", "reason", tt.reason); got != 1 ||
				r.metric("registry_reload_fail_total") != before+1 {
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

// A reload that fails for now is retried: a port in use is bound once it is free.
func TestReloadIsTriedAgain(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", hosttest.FreeAddr(t))
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

// await polls until a condition holds.
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

// logged waits until the log of a node that runs has a text: a task writes the lines.
func (r *rig) logged(text string) {
	r.t.Helper()
	r.await("a log line with "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

// A hundred reloads at once, by signal and by call, under load: no request is dropped, every caller
// gets a version, and each configuration that was read counts once.
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
	if got := r.metric("registry_reload_success_total"); got != float64(reads.Load()) ||
		r.metric("registry_reload_fail_total") != 0 {
		t.Errorf("%v successes of %d reads", got, reads.Load())
	}
	t.Logf("%d reads of the configuration for 125 requests, %d answers meanwhile", reads.Load(), answered.Load())
	r.halt()
}

// A new request to a full queue replaces the oldest request, which is answered.
func TestReloadsCollapse(t *testing.T) {
	n := wired(t, newConfig(t), Options{}, &logs{})
	defer n.services.Close(t.Context())
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
	newest.answer(nodeapi.Reloaded{Version: 7}, nil)
	waits.Wait()
	close(answers)
	for v := range answers {
		if v != 7 {
			t.Errorf("answered with version %d", v)
		}
	}
}

// A node without a configuration source refuses a reload with a clear error.
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

// A reload takes effect in every part of the node.
func TestPartsAreReloaded(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	before := len(auditRows(t, cfg))
	next := *cfg
	next.Ledger.SlotMax = 1
	next.Registry.Proposals.TTL = unit.Duration(time.Hour)
	next.Store.MinFree = 1 << 20
	next.Audit.Enabled, next.Metrics.OpenMetrics = false, true
	r := launchWith(t, cfg,
		Options{Load: func() (*config.Config, []config.Entry, error) { return &next, nil, nil }}).begin()
	if r.openMetrics() {
		t.Error("the metrics are OpenMetrics before")
	}
	_, err := r.Reload(t.Context(), engines.Actor{}, "")
	must(t, err)
	if !r.openMetrics() {
		t.Error("metrics: they are no OpenMetrics")
	}
	for n := uint64(1); n <= 2; n++ { // the second ends the slot of the first
		r.receipt("/v1/transfer", "k"+string('0'+rune(n)), pay("alice", "bob", "1", n))
	}
	r.await("ledger: a slot to be sealed", func() bool { return r.metric("idem_entries", "tier", "sealed") > 0 })
	r.await("store: another reserve", func() bool { return r.metric("store_disk_reserve_bytes") == 1<<20 })
	p, err := r.socket().Propose(t.Context(), draft(2, "x"), "")
	must(t, err)
	expires, err := time.Parse(time.RFC3339Nano, p.ExpiresAt)
	if left := time.Until(expires); err != nil || left > time.Hour || left < 30*time.Minute {
		t.Errorf("registry: a proposal expires in %s, %v", left, err)
	}
	r.verbNode()
	r.halt()
	if after := len(auditRows(t, cfg)); after != before {
		t.Errorf("audit: %d rows, were %d", after, before)
	}
}

// asks is a request with a caller.
func asks() *reload { return &reload{source: sourceAdmin, reply: flow.NewReply[nodeapi.Reloaded]()} }

// If a reload comes after the queue has closed, the request that it replaced is answered, too.
func TestReloadTooLate(t *testing.T) {
	n := wired(t, newConfig(t), Options{}, &logs{})
	defer n.services.Close(t.Context())
	for _, newest := range []*reload{asks(), {source: sourceSignal}} {
		old := asks()
		newest.takeOver(old)
		n.reloads.Close()
		if err := n.askReload(newest); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("into a closed queue: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := old.reply.Wait(ctx); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("whose place was taken: %v", err)
		}
	}
}

// A reload is skipped if all its callers have left, unless a signal requested it too.
func TestReloadNobodyWaitsFor(t *testing.T) {
	cfg := newConfig(t)
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		n := wired(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) {
			reads++
			return cfg, nil, nil
		}}, &logs{})
		defer n.services.Close(t.Context())
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := n.Reload(gone, engines.Actor{}, "")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("who left hears %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = n.runReloader(ctx) }()
		synctest.Wait()
		if reads != 0 {
			t.Errorf("%d reads for nobody", reads)
		}
		n.Hangup()
		_, _ = n.Reload(gone, engines.Actor{}, "")
		synctest.Wait()
		if reads != 1 {
			t.Errorf("%d reads for a signal", reads)
		}
		stop()
		synctest.Wait()
	})
}

// A missing file is an error, not a configuration of defaults.
func TestReloadOfAFileThatIsGone(t *testing.T) {
	r, rewrite := reloadable(t)
	rewrite("registry.limits.rps = 77\n")
	if done, err := r.Reload(t.Context(), engines.Actor{}, ""); err != nil || done.Version != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	path := r.cfg.Path(config.FileName)
	must(t, os.Rename(path, path+".away"))
	_, err := r.socket().Reload(t.Context())
	if p := problem(t, err); p.Status != 422 || r.metric("registry_reload_fail_total", "reason", "parse") != 1 {
		t.Errorf("%+v", p)
	}
	if r.version() != 2 || r.conf().Registry.Limits.RPS != 77 {
		t.Errorf("version %d, rps %d", r.version(), r.conf().Registry.Limits.RPS)
	}
	must(t, os.Rename(path+".away", path))
	if done, err := r.Reload(t.Context(), engines.Actor{}, ""); err != nil || done.Version != 2 {
		t.Errorf("once it is back: %+v, %v", done, err)
	}
	r.halt()
}

// However many keys change at once, each is on the audit chain.
func TestAuditOfManyChanges(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	const keys = 150
	p := &pending{asked: &reload{source: sourceSignal}, next: current{version: 2, cfg: cfg}}
	for i := range keys {
		p.changed = append(p.changed, config.Change{Key: fmt.Sprintf("a.key%03d", i), From: "1", To: "2"})
	}
	r.finish(t.Context(), p)
	r.halt()
	seen := map[string]bool{}
	for _, e := range auditEvents(t, cfg) {
		if e.Event != "config.reloaded" {
			continue
		}
		if e.Detail["version"] != "2" {
			t.Errorf("a row without the version: %v", e.Detail)
		}
		for k := range e.Detail {
			seen[k] = true
		}
	}
	if len(seen) != keys+1 {
		t.Errorf("%d of %d changes are on the chain", len(seen)-1, keys)
	}
}

// A node that changes its address under load answers every connection that it accepted. A late
// client of the old address gets a refused connection and retries at the new one; no connection is
// cut.
func TestChangedBindDropsNothing(t *testing.T) {
	cfg, _ := devConfig(t)
	addrs := []string{hosttest.FreeAddr(t), hosttest.FreeAddr(t)}
	cfg.Server.Bind = hosttest.FreeAddr(t)
	moves := 0
	r := launchWith(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) {
		next := *cfg
		next.Server.Bind = addrs[moves%len(addrs)]
		moves++
		return &next, nil, nil
	}}).begin()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var answered, refused atomic.Int64
	for i := range 4 {
		tr := &http.Transport{DisableKeepAlives: i%2 == 0}
		load.Go(func() {
			defer tr.CloseIdleConnections()
			for ctx.Err() == nil {
				switch err := ask(tr, "http://"+r.Addr()+"/registry/head"); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, syscall.ECONNREFUSED):
					refused.Add(1)
				default:
					t.Errorf("a request was dropped: %v", err)
					return
				}
			}
		})
	}
	const times = 8
	for n := range times {
		before := answered.Load()
		r.await("answers", func() bool { return answered.Load() > before+20 || t.Failed() })
		if done, err := r.Reload(t.Context(), engines.Actor{}, ""); err != nil || done.Version != uint64(n+2) ||
			r.Addr() != addrs[n%len(addrs)] {
			t.Fatalf("move %d: %+v, %v, on %s", n, done, err, r.Addr())
		}
	}
	stop()
	load.Wait()
	if got := r.metric("registry_reload_success_total"); got != times {
		t.Errorf("%v successes", got)
	}
	t.Logf("%d answers, %d asked at an address that was left", answered.Load(), refused.Load())
	r.halt()
}

// ask expects a complete answer: the result, or a rate limit.
func ask(tr *http.Transport, url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	// a fast machine asks for more than its share
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		return errors.New(resp.Status)
	}
	return nil
}

// If one part fails, the parts before it are undone in reverse order, and no change takes effect.
func TestPartsAllOrNothing(t *testing.T) {
	const n = 4
	for bad := range n + 1 {
		var did []string
		var parts []part
		for i := range n {
			note := func(what string) func() { return func() { did = append(did, fmt.Sprint(what, i)) } }
			parts = append(
				parts,
				part{fmt.Sprint("part", i), func(context.Context, *config.Config) (swap, undo func(), err error) {
					if i == bad {
						return nil, nil, errors.New("no")
					}
					return note("swap"), note("undo"), nil
				}},
			)
		}
		swap, err := prepareAll(t.Context(), parts, config.Default())
		var want []string
		if bad == n {
			swap()
			want = []string{"swap0", "swap1", "swap2", "swap3"}
		} else {
			for i := bad - 1; i >= 0; i-- {
				want = append(want, fmt.Sprint("undo", i))
			}
		}
		if !slices.Equal(did, want) {
			t.Errorf("with part %d failing: %v, want %v", bad, did, want)
		}
		if failed := err != nil; failed != (bad < n) || failed && err.Error() != fmt.Sprintf("part%d: no", bad) {
			t.Errorf("with part %d failing: %v", bad, err)
		}
	}
}

// Changes that were prepared when the node began to drain are undone, because a draining node
// closes its sockets.
func TestPartsOfADrainingNode(t *testing.T) {
	ctx, drain := context.WithCancel(t.Context())
	undone := 0
	parts := []part{{"last", func(context.Context, *config.Config) (swap, undo func(), err error) {
		drain()
		return func() {}, func() { undone++ }, nil
	}}}
	if _, err := prepareAll(ctx, parts, config.Default()); !errors.Is(err, context.Canceled) || undone != 1 {
		t.Errorf("%v, undone %d times", err, undone)
	}
}
