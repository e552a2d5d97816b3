package server

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines"
)

// changed returns options of a member that reads a changed configuration.
func changed(cfg *config.Config, m *fakeMember, change func(*config.Config)) Options {
	o := (&renewal{}).options(m)
	o.Load = func() (*config.Config, []config.Entry, error) {
		next := *cfg
		change(&next)
		return &next, nil, nil
	}
	return o
}

// What a member has reloaded while it stood by is in force once it leads: the files of before are
// not read again.
func TestElectedAfterReload(t *testing.T) {
	cfg := clusteredConfig(t)
	const peer = "127.0.0.1:9"
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "fresh")
	must(t, errors.Join(os.WriteFile(old, []byte("old\n"), 0o600), os.WriteFile(fresh, []byte("fresh\n"), 0o600)))
	cfg.Index.Peers = []string{"http://" + peer + "#eu"}
	cfg.Index.PeerTokens = map[string]string{peer: old}
	m := newFakeMember()
	r := standby(t, cfg, changed(cfg, m, func(next *config.Config) {
		next.Index.PeerTokens = maps.Clone(cfg.Index.PeerTokens)
		next.Index.PeerTokens[peer] = fresh
	}))
	r.Hangup()
	r.await("the reload", func() bool { return r.version() == 2 })
	must(t, os.Remove(old))
	must(t, m.elect())
	r.begin()
	r.halt()
}

// A reload that fails for now is retried by a member that stands by, too.
func TestStandbyTriesAgain(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", hosttest.FreeAddr(t))
	must(t, err)
	cfg := clusteredConfig(t)
	m := newFakeMember()
	r := standby(t, cfg, changed(cfg, m, func(next *config.Config) { next.Server.Bind = taken.Addr().String() }))
	r.Hangup()
	r.await("a failure", func() bool { return r.metric("registry_reload_fail_total", "reason", "bind") == 1 })
	must(t, taken.Close())
	r.await("the new port", func() bool { return r.version() == 2 })
	must(t, m.elect())
	r.begin()
	if r.Addr() != taken.Addr().String() {
		t.Errorf("listens on %s", r.Addr())
	}
	r.halt()
}

// A caller that leaves while a member that stands by reloads is told that the outcome is unknown.
func TestStandbyReloadWhoseCallerLeaves(t *testing.T) {
	cfg := clusteredConfig(t)
	m := newFakeMember()
	began, goOn := make(chan struct{}), make(chan struct{})
	r := standby(t, cfg, changed(cfg, m, func(next *config.Config) {
		close(began)
		<-goOn
		next.Log.Level = "debug"
	}))
	ctx, leave := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() {
		_, err := r.Reload(ctx, engines.Actor{}, "")
		told <- err
	}()
	<-began
	leave()
	if err := <-told; !errors.Is(err, flow.ErrUnknown) {
		t.Errorf("who left hears %v", err)
	}
	close(goOn)
	r.await("the reload", func() bool { return r.version() == 2 })
	r.stop()
	r.end()
}
