package auth

import (
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is when the tests take place.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// secret is the node's.
var secret = []byte("node secret")

// rig is an Authority whose state can be changed.
type rig struct {
	*Authority
	keys    []Key
	revoked []Revocation
	epoch   uint64
}

// reload puts the rig's state in force.
func (r *rig) reload() { r.Swap(NewState(secret, r.keys, r.revoked, r.epoch)) }

// newRig has one active key and one that only verifies.
func newRig() *rig {
	r := &rig{Authority: New(DefaultConfig(), nil), epoch: 7, keys: []Key{
		{Kid: "k1", Salt: []byte("k1"), State: KeyActive, CreatedAt: noon.Add(-time.Hour)},
		{Kid: "k2", Salt: []byte("k2"), State: KeyVerify, CreatedAt: noon.Add(-48 * time.Hour), VerifyUntil: noon.Add(24 * time.Hour)},
	}}
	r.reload()
	return r
}

// mint makes a token for registry.propose, narrowed further by caveats.
func mint(t testing.TB, a *rig, caveats ...string) string {
	t.Helper()
	token, _, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Caveats: caveats, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// propose is the request that mint's token is for.
func propose() Request {
	return Request{
		Method: "POST", Path: "/registry/proposals", Service: "registry", Scope: "registry.propose", Now: noon,
		IP: netip.MustParseAddr("192.0.2.7"),
	}
}

// unnamed is propose from the admin socket, where failures are not counted.
func unnamed() Request {
	r := propose()
	r.IP, r.Socket = netip.Addr{}, true
	return r
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"max_ttl": func(c *Config) { c.MaxTTL++ }, "default_ttl": func(c *Config) { c.DefaultTTL = 0 },
		"rotate": func(c *Config) { c.Rotate = 0 }, "clock_skew": func(c *Config) { c.ClockSkew = -1 }, "max_token_bytes": func(c *Config) { c.MaxTokenBytes = 100 },
		"max_caveats": func(c *Config) { c.MaxCaveats = 0 },
	} {
		c := DefaultConfig()
		spoil(&c)
		if c.Validate() == nil {
			t.Errorf("a wrong %s passes", name)
		}
	}
}
