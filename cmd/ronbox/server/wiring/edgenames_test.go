package wiring

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/index/name"
)

// Each error of the index has one of the edge.
func TestErrorsOfNames(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx       context.Context
		err, want error
	}{
		{t.Context(), fmt.Errorf("lookup: %w", name.ErrNotFound), asset.ErrNotFound},
		{t.Context(), &name.SilentError{Peers: 1}, asset.ErrNotFound},
		{t.Context(), name.ErrUpstream, asset.ErrNames},
		{t.Context(), name.ErrTimeout, asset.ErrNames},
		{t.Context(), &name.BreakerOpenError{}, asset.ErrNames},
		{t.Context(), flow.ErrBusy, flow.ErrBusy},
		{ended, context.Canceled, context.Canceled},
	} {
		if got := lookupError(tt.ctx, tt.err); !errors.Is(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
	var rate *asset.RateError
	err := lookupError(t.Context(), &name.RateError{Wait: time.Second})
	if !errors.As(err, &rate) || rate.Wait != time.Second {
		t.Error(err)
	}
}

// The endpoint of a node becomes a multiaddr as the index spells it.
func TestMultiaddr(t *testing.T) {
	for endpoint, want := range map[string]string{
		"https://a.example":         "/dns4/a.example/tcp/443/https",
		"https://a.example:8443":    "/dns4/a.example/tcp/8443/https",
		"http://127.0.0.1:8080":     "/ip4/127.0.0.1/tcp/8080/http",
		"https://[2001:db8::1]:443": "/ip6/2001:db8::1/tcp/443/https",
	} {
		got, err := multiaddrOf(endpoint)
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", endpoint, got, err, want)
		}
		r := name.ProviderRecord{CID: b3.Sum(nil), Addrs: []string{got}, AtMS: time.Now().UnixMilli(), TTLSec: 3600}
		if _, err := r.Sign(ed25519.NewKeyFromSeed(make([]byte, 32)), time.Now()); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if _, err := multiaddrOf("nonsense"); err == nil {
		t.Error("no error")
	}
}
