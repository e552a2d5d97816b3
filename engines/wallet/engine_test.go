package wallet

import (
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
)

// A catalogue and a ledger are enough: what else may be left out is left out, and the caches are not open.
func TestBareEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := ledgertest.NewModel(nil), flow.NewCatalog(nil, nil)
		if err := m.Declare(t.Context(), "ron"); err != nil {
			t.Fatal(err)
		}
		e, sup := New(DefaultConfig(), Deps{Catalog: c, Ledger: m}), flow.NewSupervisor(t.Context(), c, flow.Hooks{})
		sup.Start(e.Tasks()...)
		synctest.Wait()
		for _, replayed := range []bool{false, true, true} {
			if a, err := e.Post(t.Context(), alice, "k", "", issue("bo", 1, 1)); err != nil || a.Replayed != replayed {
				t.Errorf("%+v, %v", a, err)
			}
		}
		if b, err := e.Balance(t.Context(), alice, "bo", "ron", 0); err != nil || b.Available != amountOf(1) || b.Stale != 0 {
			t.Errorf("%+v, %v", b, err)
		}
		if after := e.stallAfter(); after != ledger.DefaultConfig().StallAfter.D() {
			t.Errorf("a call stalls after %s", after)
		}
		e.Purge()
		c.CloseFedBy(service, flow.HTTP)
		if aborted := sup.Drain(service, time.Second, time.Second); aborted != 0 {
			t.Errorf("%d aborted", aborted)
		}
		sup.Close()
		e.Close()
		_ = m.Close(t.Context())
	})
}
