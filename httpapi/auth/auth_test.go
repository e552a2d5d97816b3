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

// fakeKeys is a Keys with one active key and one that only verifies.
type fakeKeys struct {
	active  string
	epoch   uint64
	revoked string
}

func (k *fakeKeys) Root(kid string) ([]byte, bool) {
	if kid != "k1" && kid != "k2" {
		return nil, false
	}
	return RootKey([]byte("node secret"), []byte(kid)), true
}
func (k *fakeKeys) Active() string          { return k.active }
func (k *fakeKeys) Epoch() uint64           { return k.epoch }
func (k *fakeKeys) Revoked(tid string) bool { return tid == k.revoked }

func newTestAuthority() (*Authority, *fakeKeys) {
	k := &fakeKeys{active: "k1", epoch: 7}
	return New(DefaultConfig(), k, nil), k
}

// mint makes a token for registry.propose, narrowed further by extra.
func mint(t testing.TB, a *Authority, extra ...string) string {
	t.Helper()
	token, _, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Extra: extra, Now: noon})
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

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"max_ttl": func(c *Config) { c.MaxTTL = longestTTL + 1 }, "default_ttl": func(c *Config) { c.DefaultTTL = 0 },
		"clock_skew": func(c *Config) { c.ClockSkew = -1 }, "max_token_bytes": func(c *Config) { c.MaxTokenBytes = 100 },
		"max_caveats": func(c *Config) { c.MaxCaveats = 0 },
	} {
		c := DefaultConfig()
		spoil(&c)
		if c.Validate() == nil {
			t.Errorf("a wrong %s passes", name)
		}
	}
}
