package server

import (
	"strings"
	"testing"

	"ronbox/cmd/ronbox/server/config"
)

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		names  string
		follow bool
		err    string
	}{
		{names: "wallet,edge"},
		{names: "rewarder,wallet"},
		{names: "registry", follow: true},
		{names: "registry,wallet,rewarder,edge,index"},
		{names: "walet", err: "did you mean wallet?"},
		{names: "ledger", err: "registry, wallet, rewarder, edge, index"},
		{names: "rewarder", err: "needs the wallet"},
		{names: "edge", follow: true, err: "needs the registry"},
		{names: "", err: "name some of"},
	} {
		cfg := config.Default()
		if tt.follow {
			cfg.Registry.Follow.URL = "https://hub.example"
		}
		names := strings.FieldsFunc(tt.names, func(r rune) bool { return r == ',' })
		err := Choose(cfg, names)
		on, off := Chosen(cfg)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || off != nil {
				t.Errorf("%q: %v, want %q; off are %v", tt.names, err, tt.err, off)
			}
			continue
		}
		if err != nil || len(on) != len(names) || len(on)+len(off) != len(ServiceNames()) {
			t.Errorf("%q: %v on, %v off, %v", tt.names, on, off, err)
		}
	}
}

// A node of chosen services has the others off after a restart too, and says so.
func TestInitOfServices(t *testing.T) {
	cfg := newConfig(t)
	must(t, Choose(cfg, []string{"wallet", "edge"}))
	res, err := Init(t.Context(), cfg, InitOptions{Dev: true, Services: []string{"wallet", "edge"}})
	must(t, err)
	if res.Genesis != "" || res.PolicyKey != "" || res.Account != devAccount {
		t.Errorf("made %+v", res)
	}
	cfg = loaded(t, cfg)
	if on, _ := Chosen(cfg); strings.Join(on, " ") != "wallet edge" {
		t.Errorf("on are %v", on)
	}
	r := start(t, cfg)
	r.sound()
	if f := r.finding("services"); f.State != "ok" || f.Message != "on: wallet, edge; off: registry, rewarder, index" {
		t.Errorf("%+v", f)
	}
	for name, want := range map[string]float64{"wallet": 1, "edge": 1, "registry": 0, "rewarder": 0, "index": 0} {
		if got := r.metric("service_on", "service", name); got != want {
			t.Errorf("the metric of %s is %v", name, got)
		}
	}
	r.halt()
}
