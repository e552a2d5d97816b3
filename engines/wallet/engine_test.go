package wallet_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/wallet"
)

// A catalogue and a ledger are enough to run an engine. All other dependencies are optional.
func TestBareEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := ledgertest.NewModel(nil), flow.NewCatalog(nil, nil)
		if err := m.Declare(t.Context(), "ron"); err != nil {
			t.Fatal(err)
		}
		e, sup := wallet.New(wallet.DefaultConfig(), wallet.Deps{Catalog: c, Ledger: m}), flow.NewSupervisor(t.Context(), c, flow.Hooks{})
		sup.Start(e.Tasks()...)
		synctest.Wait()
		for _, replayed := range []bool{false, true, true} {
			if a, err := e.Post(t.Context(), alice, "k", "", issue("bo", 1, 1)); err != nil || a.Replayed != replayed {
				t.Errorf("%+v, %v", a, err)
			}
		}
		if b, err := e.Balance(t.Context(), alice, "bo", "ron", 0); err != nil || b.Available != amountOf(1) {
			t.Errorf("%+v, %v", b, err)
		}
		if after := e.Stall(); after != ledger.DefaultConfig().StallAfter.D() {
			t.Errorf("a call stalls after %s", after)
		}
		e.Purge()
		c.CloseFedBy(wallet.Service, flow.HTTP)
		if aborted := sup.Drain(wallet.Service, time.Second, time.Second); aborted != 0 {
			t.Errorf("%d aborted", aborted)
		}
		sup.Close()
		e.Close()
		_ = m.Close(t.Context())
	})
}

// An engine that is garbage collected without Close logs a debug line. A closed engine does not.
func TestDroppedUnclosed(t *testing.T) {
	out := &shared{}
	log := hclog.New(&hclog.LoggerOptions{Output: out, Level: hclog.Debug})
	m, shut, left := ledgertest.NewModel(nil), flow.NewCatalog(nil, nil), flow.NewCatalog(nil, nil)
	wallet.New(wallet.DefaultConfig(), wallet.Deps{Catalog: shut, Ledger: m, Log: log.Named("closed")}).Close()
	wallet.New(wallet.DefaultConfig(), wallet.Deps{Catalog: left, Ledger: m, Log: log.Named("open")})
	for end := time.Now().Add(time.Minute); !strings.Contains(out.String(), "open.wallet: engine dropped without Close"); time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(end) {
			t.Fatalf("nothing is said of it: %s", out)
		}
	}
	if strings.Contains(out.String(), "closed") {
		t.Errorf("of one that was closed: %s", out)
	}
}

// While no token key is active, auth_ready fails, each tick counts a failure, and writes are
// refused.
func TestAuthAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		begun := time.Now()
		*r.e.AuthReady() = func() error {
			if time.Since(begun) < 3*time.Second {
				return errTest
			}
			return nil
		}
		r.hasty = true
		r.start()
		time.Sleep(2500 * time.Millisecond)
		var not *wallet.NotReadyError
		if _, err := r.post("k", issue("bo", 1, 1)); !errors.As(err, &not) || not.Cause != wallet.CauseAuth {
			t.Errorf("away: %v", err)
		}
		time.Sleep(time.Second)
		r.want(3, "upstream_fail_total", "svc", wallet.SvcAuth)
		r.must("k", issue("bo", 1, 1))
		r.stop()
	})
}
