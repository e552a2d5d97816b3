package auth

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A token of the key before the active one verifies until that key's time is over, or it is
// retired.
func TestRotation(t *testing.T) {
	a := newRig()
	old := mint(t, a)
	a.keys[0].State, a.keys[0].VerifyUntil = KeyVerify, noon.Add(time.Hour)
	a.keys[1].State, a.keys[1].VerifyUntil = KeyActive, time.Time{}
	a.reload()
	young := mint(t, a)
	if got, err := Inspect(young); err != nil || got.Kid != "k2" || a.State().active != "k2" {
		t.Errorf("minted by %s, active is %s, %v", got.Kid, a.State().active, err)
	}
	for _, tt := range []struct {
		doc   string
		token string
		at    time.Time
		want  outcome
	}{
		{"the new key's", young, noon, allowed}, {"the old key's", old, noon, allowed},
		{"the old key's at its last moment", old, noon.Add(time.Hour + 30*time.Second - 1), allowed},
		{"the old key's, too late", old, noon.Add(time.Hour + 30*time.Second), rejected},
	} {
		r := unnamed()
		r.Now = tt.at
		if _, err := a.Check(tt.token, r); outcomeOf(t, err) != tt.want {
			t.Errorf("%s: %v, want %s", tt.doc, err, tt.want)
		}
	}
	a.keys[0].State = KeyRetired
	a.reload()
	if _, err := a.Check(old, unnamed()); outcomeOf(t, err) != rejected {
		t.Errorf("retired: %v", err)
	}
	a.keys = a.keys[:1]
	a.reload()
	if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}}); !errors.Is(err, ErrSpec) {
		t.Errorf("minted without a key: %v", err)
	}
}

func TestNewestActiveKeyMints(t *testing.T) {
	keys := []Key{
		{
			Kid:       "a",
			Salt:      []byte("a"),
			State:     KeyActive,
			CreatedAt: noon,
		},
		{Kid: "b", Salt: []byte("b"), State: KeyActive, CreatedAt: noon.Add(1)},
		{Kid: "c", Salt: []byte("c"), State: KeyActive, CreatedAt: noon.Add(-1)},
	}
	if got := NewState(secret, keys, nil, 0).active; got != "b" {
		t.Errorf("active is %s", got)
	}
	if s := NewState(nil, keys, nil, 0); s.active != "" || len(s.keys) != 0 {
		t.Error("keys without a secret")
	}
}

// Before it has a state an Authority refuses everything, without a reason.
func TestNoState(t *testing.T) {
	a := newRig()
	token := mint(t, a)
	empty := New(DefaultConfig(), nil)
	if _, err := empty.Check(token, propose()); outcomeOf(t, err) != rejected {
		t.Error(err)
	}
	if _, _, err := empty.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}}); !errors.Is(err, ErrSpec) {
		t.Error(err)
	}
}

// Revoking a tenant or an epoch voids tokens issued until then; those minted after it are valid,
// even in the same second.
func TestRevokeUntilThen(t *testing.T) {
	for _, r := range []Revocation{{What: "tenant", Value: "acme"}, {What: "epoch", Value: "7"}} {
		a := newRig()
		spec := MintSpec{
			Sub:    "x",
			Tenant: "acme",
			Scopes: []string{"registry.propose"},
			Now:    noon.Add(300 * time.Millisecond),
		}
		before, _, err := a.Mint(spec)
		if err != nil {
			t.Fatal(err)
		}
		r.At = noon.Add(400 * time.Millisecond)
		a.Swap(a.State().With(r))
		spec.Now = noon.Add(500 * time.Millisecond)
		after, id, err := a.Mint(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(before, propose()); outcomeOf(t, err) != rejected {
			t.Errorf("%s: before it: %v", r.What, err)
		}
		if _, err := a.Check(after, propose()); err != nil {
			t.Errorf("%s: after it: %v", r.What, err)
		}
		if got, ok := a.State().revoked.find(id, id.Tenant); ok {
			t.Errorf("%s: %+v", r.What, got)
		}
		spec.Now = noon.Add(-time.Minute) // the clock went back
		if _, _, err := a.Mint(spec); !errors.Is(err, ErrSpec) {
			t.Errorf("%s: minted what is void: %v", r.What, err)
		}
	}
}

// A token minted after its tenant was revoked is valid, also where only a caveat names the tenant.
func TestRevokedTenantInACaveat(t *testing.T) {
	a := newRig()
	a.Swap(a.State().With(Revocation{What: "tenant", Value: "acme", At: noon}))
	if _, err := a.Check(mint(t, a, "tenant = acme"), propose()); err != nil {
		t.Error(err)
	}
	// and then the clock went back
	a.Swap(a.State().With(Revocation{What: "tenant", Value: "acme", At: noon.Add(time.Hour)}))
	if _, _, err := a.Mint(
		MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{"tenant = acme"}, Now: noon},
	); !errors.Is(err, ErrSpec) {
		t.Errorf("minted what is void: %v", err)
	}
}

// A token that was narrowed to a tenant goes with it.
func TestRevokeNarrowedTenant(t *testing.T) {
	a := newRig()
	wide := mint(t, a)
	narrow := appendRaw(t, wide, "tenant = acme")
	if _, err := a.Check(narrow, propose()); err != nil {
		t.Fatal(err)
	}
	a.Swap(a.State().With(Revocation{What: "tenant", Value: "acme", At: noon}))
	if _, err := a.Check(narrow, propose()); outcomeOf(t, err) != rejected {
		t.Error(err)
	}
	if _, err := a.Check(wide, propose()); err != nil {
		t.Error(err)
	}
}

func TestRevokedKeyDoesNotMint(t *testing.T) {
	a := newRig()
	a.Swap(a.State().With(Revocation{What: "kid", Value: "k1", At: noon}))
	if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Now: noon}); !errors.Is(err, ErrSpec) {
		t.Error(err)
	}
}

// However revocations came, one by one or all at once, the same are found, and an earlier state
// does not change.
func TestWithIsNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.Custom(func(t *rapid.T) Revocation {
			what := rapid.SampledFrom([]string{"tid", "kid", "tenant", "epoch"}).Draw(t, "what")
			return Revocation{
				What:  what,
				Value: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "value")),
				At:    noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "at")) * time.Second),
			}
		})
		batches := rapid.SliceOf(rapid.SliceOfN(one, 0, 8)).Draw(t, "batches")
		s, all := NewState(secret, nil, nil, 0), []Revocation{}
		for _, batch := range batches {
			before := len(s.revoked.bulk) + len(s.revoked.fresh)
			next := s.With(batch...)
			if len(s.revoked.bulk)+len(s.revoked.fresh) != before {
				t.Fatal("the state before was changed")
			}
			s, all = next, append(all, batch...)
		}
		whole := NewState(secret, nil, all, 0)
		for i := range 10 {
			for sec := range 5 {
				id := Identifier{
					TID:      fmt.Sprint(i),
					Kid:      fmt.Sprint(i + 1),
					Tenant:   fmt.Sprint(i + 2),
					Epoch:    uint64(i + 3),
					IssuedAt: noon.Unix() + int64(sec) - 1,
				}
				a, okA := s.revoked.find(id, id.Tenant)
				b, okB := whole.revoked.find(id, id.Tenant)
				if a != b || okA != okB {
					t.Fatalf("%+v: %+v one by one, %+v at once", id, a, b)
				}
			}
		}
	})
}

func TestManyRevocations(t *testing.T) {
	s := NewState(secret, nil, nil, 0)
	for i := range 3*maxFresh + 7 {
		s = s.With(Revocation{What: "tid", Value: fmt.Sprint(i), At: noon})
		if len(s.revoked.fresh) > maxFresh {
			t.Fatalf("%d are copied for one more", len(s.revoked.fresh))
		}
	}
	for i := range 3*maxFresh + 7 {
		if _, ok := s.revoked.find(Identifier{TID: fmt.Sprint(i)}, ""); !ok {
			t.Fatalf("%d is lost", i)
		}
	}
}

// The cache of verified tokens is bounded, and its entries never outlive their key.
func TestVerifiedCache(t *testing.T) {
	a := newRig()
	hashes := a.counted()
	use := func(doc, token string, macs int, want outcome) {
		t.Helper()
		*hashes = nil
		if _, err := a.Check(token, unnamed()); outcomeOf(t, err) != want || len(*hashes) != macs {
			t.Errorf("%s: %v, want %s; %d MACs, want %d", doc, err, want, len(*hashes), macs)
		}
	}
	token := mint(t, a, "path = /registry/*", "method = POST")
	use("first", token, 1, allowed)
	use("again", token, 0, allowed)
	a.Swap(a.State().With(Revocation{What: "tid", Value: "another", At: noon}))
	use("after another revocation", token, 0, allowed)
	a.reload()
	use("under other keys", token, 1, allowed)
	cfg := DefaultConfig()
	cfg.MaxCaveats = 3
	a.SetConfig(cfg)
	use("more caveats than are allowed now", token, 1, rejected)
	cfg = DefaultConfig()
	cfg.MaxTokenBytes = len(token) - 1
	a.SetConfig(cfg)
	use("longer than is allowed now", token, 1, rejected)
	a.SetConfig(DefaultConfig())
	use("as before", token, 0, allowed)
	for i := range 3 * maxVerified {
		p := &policy{token: fmt.Sprint(i)}
		a.State().verified.put(p)
		a.State().verified.get(token) // in use
	}
	use("others came and went", token, 0, allowed)
	for i := range 3 * maxVerified {
		a.State().verified.put(&policy{token: fmt.Sprint("x", i)})
	}
	use("unused while others came", token, 1, allowed)
	if p := a.State().verified; len(p.young) > maxVerified || len(p.old) > maxVerified {
		t.Errorf("%d and %d are kept", len(p.young), len(p.old))
	}
	long := mint(t, a, "path = /registry/*,/"+fmt.Sprintf("%0800d", 1))
	use("a long one", long, 1, allowed)
	use("a long one again", long, 1, allowed)
	for key := range a.State().verified.young {
		a.State().verified.young[key] = &policy{token: "another that meets it by chance"}
	}
	use("one that meets another", token, 1, allowed)
}
