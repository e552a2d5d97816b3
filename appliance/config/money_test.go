package config

import (
	"strings"
	"testing"
)

// Keys of money bound each other; a fault names the one that is out of bounds, what it was set to, and the bound.
func TestMoneyBounds(t *testing.T) {
	for _, tt := range []struct {
		doc, file string
		want      []string // one fragment for each fault, in order
	}{
		{"an operation of nothing", "[wallet]\nmax_amount_per_op = \"0\"\n", []string{`:2:1: wallet.max_amount_per_op = "0": must be`}},
		{"an operation beyond the day", "[wallet]\nmax_amount_per_op = \"11\"\ndaily_ceiling = \"10\"\n",
			[]string{`:3:1: wallet.daily_ceiling = "10": must be max_amount_per_op = 11 or more`}},
		{"a day beyond the account", "[wallet]\nmax_amount_per_op = \"1\"\nmax_account_total = \"5\"\n",
			[]string{`:3:1: wallet.max_account_total = "5": must be daily_ceiling`}},
		{"an amount that is a number", "[wallet]\ndaily_ceiling = 5\n", []string{`:2:1: wallet.daily_ceiling = 5: must be a quoted string`}},
		{"an amount that is none", "[wallet]\ndaily_ceiling = \"-5\"\n", []string{`:2:1: wallet.daily_ceiling = "-5": `}},
		{"an amount beyond 128 bits", "[wallet]\nmax_account_total = \"340282366920938463463374607431768211456\"\n", []string{":2:1: wallet.max_account_total = "}},
		{"a request that ends before its call", "[wallet]\nreq_timeout = \"900ms\"\n", []string{`:2:1: wallet.req_timeout = "900ms": must be 1s..`}},
		{"room in flight below the queue", "[wallet]\nlimits.max_inflight = 512\n", []string{`:2:8: wallet.limits.max_inflight = 512: must be 513..`}},
		{"shards that are no power of two", "[wallet]\nshards = 3\n", []string{":2:1: wallet.shards = 3: must be a power of two"}},
		{"a drain that is too long", "[wallet]\ndrain_deadline = \"6s\"\n", []string{`:2:1: wallet.drain_deadline = "6s": must be 1s..5s`}},
		{"another first nonce", "[wallet]\nnonce_start = 2\n", []string{":2:1: wallet.nonce_start = 2: must be 1"}},
		{"an unknown mode", "[wallet]\nnonce_mode = \"loose\"\n", []string{`:2:1: wallet.nonce_mode = "loose": must be strict or monotonic`}},
		{"an asset that is none", "[wallet]\nassets = [\"ron\", \"Gold\"]\n", []string{`:2:1: wallet.assets = "Gold": `}},
		{"no asset", "[wallet]\nassets = []\n", []string{`:2:1: wallet.assets`}},
		{"fewer operations under way than in a batch", "[wallet]\nbatch_inflight_ops = 100\n", []string{":2:1: wallet.batch_inflight_ops = 100: must be 4096.."}},
		{"slots that outlive their keys", "[wallet]\nidempotency_ttl = \"10m\"\n",
			[]string{`default: ledger.slot_width = "15m": must be at most wallet.idempotency_ttl = "10m"`}},
		{"an unknown depth", "[ledger]\nverify_on_open = \"some\"\n", []string{`:2:1: ledger.verify_on_open = "some": must be none, tail or full`}},
		{"a name of the other section", "[ledger]\nworkers = 3\n", []string{"did you mean wallet.workers?"}},
	} {
		_, err := Load(LoadOptions{File: write(t, tt.file)})
		faults := Faults(err)
		if len(faults) != len(tt.want) {
			t.Errorf("%s: %d faults, want %d:\n%v", tt.doc, len(faults), len(tt.want), err)
			continue
		}
		for i, f := range faults {
			if !strings.Contains(f.Error(), tt.want[i]) {
				t.Errorf("%s: %q, want it to have %q", tt.doc, f, tt.want[i])
			}
		}
	}
}

// What SIGHUP may change of the money is what does not shape the tables in memory.
func TestMoneyReloads(t *testing.T) {
	fixed := map[string]bool{
		"wallet.enabled": true, "wallet.workers": true, "wallet.worker_burst": true, "wallet.nonce_start": true, "wallet.shards": true,
		"wallet.balance_cache_bytes": true, "ledger.verify_on_open": true,
	}
	for _, l := range leaves(Default()) {
		if !strings.HasPrefix(l.key, "wallet.") && !strings.HasPrefix(l.key, "ledger.") {
			continue
		}
		if want := map[bool]string{true: ReloadRestart, false: ReloadInPlace}[fixed[l.key]]; l.reload != want {
			t.Errorf("%s is %q, want %q", l.key, l.reload, want)
		}
	}
}
