package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/wire"
)

// asks is a request with a caller.
func asks() *reload { return &reload{source: sourceAdmin, reply: flow.NewReply[wire.Reloaded]()} }

// Whoever a request has made room for hears with it that it came too late.
func TestReloadTooLate(t *testing.T) {
	n := wired(t, newConfig(t), Options{}, &logs{})
	defer n.closeEngines()
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

// What nobody waits for any more is not done, unless a signal asked for it too.
func TestReloadNobodyWaitsFor(t *testing.T) {
	cfg := newConfig(t)
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		n := wired(t, cfg, Options{Load: func() (*config.Config, []config.Entry, error) {
			reads++
			return cfg, nil, nil
		}}, &logs{})
		defer n.closeEngines()
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

// A file that is gone is a mistake, not a wish for every default.
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
	p := &pending{asked: &reload{source: sourceSignal}, next: inForce{version: 2, cfg: cfg}}
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
