package auth

import (
	"slices"
	"strings"
	"testing"
)

func TestScopes(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		scopes []string
		want   string
		more   []string
		is     outcome
	}{
		{"its own", []string{"registry.commit"}, "registry.commit", nil, allowed},
		{"colon form", []string{"registry:commit"}, "registry.commit", nil, allowed},
		{"another", []string{"registry.commit"}, "registry.propose", nil, denied},
		{"admin implies", []string{"node.admin"}, "registry.propose", nil, allowed},
		{"repeats intersect", []string{"registry.commit", "registry.propose"}, "registry.commit", []string{"scope = registry.propose"}, denied},
		{"admin narrowed", []string{"node.admin"}, "node.metrics", []string{"scope = registry.propose"}, denied},
		{"narrowing does not climb", []string{"registry.propose"}, "node.drain", []string{"scope = node.admin"}, denied},
		{"no scope wanted", []string{"registry.propose"}, "", nil, allowed},
	} {
		a := newRig()
		token, id, err := a.Mint(MintSpec{Sub: "ops", Tenant: "acme", Scopes: tt.scopes, Caveats: tt.more, Now: noon})
		if err != nil {
			t.Fatal(err)
		}
		actor, err := a.Check(token, Request{Method: "GET", Path: "/x", Service: "registry", Scope: tt.want, Now: noon})
		if got := outcomeOf(t, err); got != tt.is {
			t.Errorf("%s: %s, want %s", tt.doc, got, tt.is)
		}
		if err == nil && (actor.CapID != id.TID || actor.Principal != "ops" || actor.UID != nil) {
			t.Errorf("%s: actor %+v of token %+v", tt.doc, actor, id)
		}
	}
}

func TestPeerMap(t *testing.T) {
	m, err := NewPeerMap([]uint32{500}, map[string][]string{
		"uid:1001": {"registry:propose", "node.metrics"}, "gid:100": {"node.drain"}, "uid:501": {"node.metrics"},
	}, 501)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc      string
		uid, gid uint32
		want     []string
	}{
		{"root", 0, 0, []string{"node.admin"}}, {"allowed", 500, 7, []string{"node.admin"}}, {"own, but named", 501, 7, []string{"node.metrics"}},
		{"named", 1001, 7, []string{"registry.propose", "node.metrics"}}, {"by group", 9, 100, []string{"node.drain"}},
		{"by both", 1001, 100, []string{"registry.propose", "node.metrics", "node.drain"}}, {"stranger", 9, 9, nil},
	} {
		got, ok := m.Scopes(tt.uid, tt.gid)
		if !slices.Equal(got, tt.want) || ok != (tt.want != nil) {
			t.Errorf("%s: %q, %v, want %q", tt.doc, got, ok, tt.want)
		}
	}
	if again, _ := m.Scopes(1001, 7); !slices.Equal(again, []string{"registry.propose", "node.metrics"}) {
		t.Errorf("asking for both changed the map: %q", again)
	}
}

func TestPeerMapRefuses(t *testing.T) {
	for peer, scopes := range map[string][]string{
		"root": {"node.admin"}, "uid:": {"node.admin"}, "uid:-1": {"node.admin"}, "uid:01": {"node.admin"}, "uid:4294967296": {"node.admin"},
		"user:5": {"node.admin"}, "uid:5": {}, "gid:5": {"admin"}, "gid:6": {"node.admin", "read"},
	} {
		m, err := NewPeerMap(nil, map[string][]string{peer: scopes, "uid:77": {"node.admin"}}, 1)
		if err == nil || m != nil || !strings.Contains(err.Error(), peer) {
			t.Errorf("%s = %q: %v", peer, scopes, err)
		}
	}
}
