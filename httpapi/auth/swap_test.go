package auth

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A revocation holds for every Check that begins after Swap, however many run beside it.
func TestSwapBesideChecks(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			r := propose()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r.Now = noon.Add(time.Duration(n%100) * time.Millisecond)
				_, _ = a.Check(token, r)
				_, _ = a.Check(fmt.Sprint(i, n), r)
				_ = a.Verify(token, r)
				_, _, _ = a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Now: noon})
			}
		})
	}
	for n := range 50 {
		cfg := DefaultConfig()
		cfg.MaxCaveats = 8 + n
		a.SetConfig(cfg)
		a.Swap(a.State().With(Revocation{What: "tid", Value: fmt.Sprint(n), At: noon}))
		if _, err := a.Check(token, unnamed()); err != nil {
			t.Fatal(err)
		}
	}
	a.Swap(a.State().With(Revocation{What: "tid", Value: id.TID, At: noon}))
	if _, err := a.Check(token, unnamed()); verdictOf(t, err) != rejected {
		t.Error(err)
	}
	close(stop)
	all.Wait()
}

// A token in steady use costs no allocation, whatever its caveats.
func TestCheckAllocatesNothing(t *testing.T) {
	a := newRig()
	a.SetAmnesia(true)
	r := asked("wallet", "wallet.transfer")
	token, _, err := a.Mint(MintSpec{Sub: "ops", Tenant: "acme", Scopes: []string{"wallet.transfer"}, Now: noon, Caveats: []string{
		"aud = wallet", "account = shop:*", "asset = ron", "ceiling <= 50", "ceiling_daily <= 500", "path = /registry/*", "method = POST",
		"ip = 192.0.2.0/24", "nbf > 2026-05-01T11:00:00Z", "ttl = 30m", "max_bytes <= 1000", "rate <= 1000000/s", "amnesia = on",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := a.Check(token, r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations a call", n)
	}
}
