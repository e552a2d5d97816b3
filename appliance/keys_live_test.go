package appliance

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/config"
)

// A key counts as long as the configuration says, also where the ledger by itself would have forgotten it.
func TestKeysLiveAsLongAsConfigured(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Wallet.IdempotencyTTL.UnmarshalText([]byte("72h")))
	must(t, config.Validate(cfg))
	var shift atomic.Int64
	r := launchAt(t, cfg, func() time.Time { return time.Now().Add(time.Duration(shift.Load())) })
	first := r.v1("POST", "/v1/transfer", "k1", pay("alice", "bob", "1", 1))
	for n := uint64(2); n <= 4; n++ { // each ends the slot of the one before
		shift.Add(int64(20 * time.Hour))
		r.receipt("/v1/transfer", "k"+string('0'+rune(n)), pay("alice", "bob", "1", n))
		r.await("the slot before to be sealed", func() bool { return r.metric("idem_entries", "tier", "sealed") == float64(n) })
	}
	if again := r.v1("POST", "/v1/transfer", "k1", pay("alice", "bob", "1", 1)); again.body != first.body || !again.replayed || first.status != http.StatusOK {
		t.Errorf("60 hours later: %d %s\nwas %d %s", again.status, again.body, first.status, first.body)
	}
	r.halt()
}
