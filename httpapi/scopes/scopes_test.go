package scopes

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheck(t *testing.T) {
	for scope, want := range map[string]string{
		"wallet.read": "", "wallet:read": "", "read": "", "node.admin": "", "node.metrics": "", "wallet.release": "", "rewarder.inputs": "",
		"not a scope": "", // auth refuses it
		"walet.read":  "unknown scope walet.read; did you mean wallet.read?",
		"walet:read":  "unknown scope walet:read; did you mean wallet.read?",
		"nowhere.fly": "unknown scope nowhere.fly",
	} {
		got := ""
		if err := Check(scope); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", scope, got, want)
		}
	}
	if err := CheckCaveats([]string{"ip = 10.0.0.0/8", "scope = wallet.read,edge.fil"}); err == nil {
		t.Error("a caveat with an unknown scope passes")
	}
}

// Every route that asks for a scope asks for a known one, and every service has one.
func TestKnownIsTheRouteTable(t *testing.T) {
	for _, s := range Services() {
		some := false
		for _, r := range s.Routes {
			some = some || r.Scope != ""
			if r.Scope != "" && !slices.Contains(known(), r.Scope) {
				t.Errorf("%s is not known", r.Scope)
			}
		}
		if !some {
			t.Errorf("%s has no scope", s.Name)
		}
	}
}
