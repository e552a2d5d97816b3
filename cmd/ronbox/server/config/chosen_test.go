package config

import (
	"strings"
	"testing"
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
		cfg := Default()
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
