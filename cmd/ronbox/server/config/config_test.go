package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/unit"
)

var ranged = regexp.MustCompile(`(-?[0-9][0-9a-zA-Z.]*)\.\.(-?[0-9][0-9a-zA-Z.]*)`)

// bound parses one end of a range in the reason of a fault.
func bound(t *rapid.T, text string) float64 {
	if d, err := unit.ParseDuration(text); err == nil {
		return float64(d)
	}
	if z, err := unit.ParseSize(text); err == nil {
		return float64(z)
	}
	var f float64
	if _, err := fmt.Sscan(text, &f); err != nil {
		t.Fatalf("no bound: %q", text)
	}
	return f
}

// Each fault names a known key and its place, for any values of any keys. A range in its reason is
// not empty.
func TestFaultsMakeSense(t *testing.T) {
	keys := leaves(Default())
	rapid.Check(t, func(rt *rapid.T) {
		var env []string
		for range rapid.IntRange(1, 4).Draw(rt, "keys") {
			key := rapid.SampledFrom(keys).Draw(rt, "key").key
			env = append(env, envName(key)+"="+rapid.SampledFrom([]string{
				"0",
				"-1",
				"1",
				"2",
				"7",
				"2147483648",
				"9223372036854775807",
				"0s",
				"1ns",
				"3s",
				"9999d",
				"1B",
				"1KiB",
				"9000TiB",
				"true",
				"",
			}).Draw(rt, "value"))
		}
		_, err := Load(LoadOptions{DataDir: "/d", Env: env})
		for _, f := range Faults(err) {
			if find(keys, f.Key) == nil || f.Where == "" || f.Reason == "" {
				rt.Fatalf("%v: a fault without a place: %+v", env, f)
			}
			for _, ends := range ranged.FindAllStringSubmatch(f.Reason, -1) {
				if bound(rt, ends[1]) > bound(rt, ends[2]) {
					rt.Fatalf("%v: %v", env, f)
				}
			}
		}
	})
}

// Faults returns all faults of an error, however the error is wrapped.
func TestFaultsOfWrappedErrors(t *testing.T) {
	_, err := Load(LoadOptions{File: write(t, "a = 1\nb = 2\n[zebra]\n")})
	for _, wrapped := range []error{err, fmt.Errorf("start: %w", err), fmt.Errorf("%w: %w", fs.ErrInvalid, err),
		errors.Join(fs.ErrInvalid, fmt.Errorf("x: %w", err))} {
		if got := Faults(wrapped); len(got) != 3 || got[0].Key != "a" || got[2].Key != "zebra" {
			t.Errorf("%v gives %v", wrapped, got)
		}
	}
	if got := Faults(nil); got != nil {
		t.Error(got)
	}
}

// Rules between keys.
func TestRulesBetweenKeys(t *testing.T) {
	for _, tt := range []struct{ doc, file, want string }{
		{"a body that unfolds to less than it may be", "[server]\nmax_body_bytes = \"20MiB\"\n",
			"server.decompress_abs_bytes"},
		{"a token that lives longer than any may", "[auth]\nmax_ttl = \"30m\"\n", "auth.default_ttl"},
		{"a longer body at the edge", "[edge]\ningress.body_bytes = \"2MiB\"\n",
			`ronbox.toml:2:9: edge.ingress.body_bytes = "2MiB": must be at most server.max_body_bytes = "1MiB", which`},
		{"a higher ratio at the edge", "[edge]\ningress.decompress_max_ratio = 11\n", "server.decompress_ratio_cap = 10,"},
		{"a larger content at the edge", "[edge]\ningress.decompress_abs_bytes = \"11MiB\"\n",
			`server.decompress_abs_bytes = "10MiB",`},
		{"TLS without a certificate", "[tls]\nenabled = true\nkey_path = \"k\"\n", "tls.cert_path"},
	} {
		_, err := Load(LoadOptions{File: write(t, tt.file)})
		if f := Faults(err); len(f) != 1 || !strings.Contains(f[0].Error(), tt.want) {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}

// A fault in a list or a table names the element. A file that is too long is refused.
func TestFaultsInside(t *testing.T) {
	for _, tt := range []struct{ doc, file, want string }{
		{"an element", "[uds]\nallow_uids = [1, -2]\n", ":2:1: uds.allow_uids = [1, -2]: element 1 is out of range"},
		{"a member", "[uds.map]\n\"uid:5\" = \"all\"\n",
			`:2:1: uds.map = {"uid:5" = "all"}: member "uid:5" must be a list`},
		{"a dotted member", "uds.map.\"uid:4\" = []\nuds.map.\"uid:5\" = [5]\n",
			`:2:9: uds.map = {"uid:4" = [], "uid:5" = [5]}: member "uid:5" element 0 must be a quoted string`},
		{"a peer that is none", "uds.map.\"pid:5\" = []\n", "must be uid:<number> or gid:<number>"},
		{"a scope that no route asks for", "[uds.map]\n\"uid:5\" = [\"node.metrics\", \"walet.read\"]\n",
			`uds.map: "uid:5": unknown scope walet.read; did you mean wallet.read?`},
		{"a scope that is none", "[uds.map]\n\"uid:5\" = [\"bad scope\"]\n",
			`:1:6: uds.map: "uid:5": "bad scope" is not a scope`},
		{"a number too large", "[wallet]\nnonce_start = 99999999999999999999\n",
			":2:15: wallet.nonce_start: decimal number is too large"},
		{"a table of tables", "[[uds]]\n", "is a section"},
		{"a file that is none", strings.Repeat("#", maxFile+1), "is larger than 1MiB"},
	} {
		_, err := Load(LoadOptions{File: write(t, tt.file)})
		if f := Faults(err); len(f) != 1 || !strings.Contains(f[0].Error(), tt.want) {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}

// The limits of amounts bound each other. A fault names the key that is out of bounds, its value
// and the bound.
func TestMoneyBounds(t *testing.T) {
	for _, tt := range []struct {
		doc, file string
		want      []string // one fragment for each fault, in order
	}{
		{"an operation of nothing", "[wallet]\nmax_amount_per_op = \"0\"\n",
			[]string{`:2:1: wallet.max_amount_per_op = "0": must be`}},
		{"an operation beyond the day", "[wallet]\nmax_amount_per_op = \"11\"\ndaily_ceiling = \"10\"\n",
			[]string{`:3:1: wallet.daily_ceiling = "10": must be max_amount_per_op = 11 or more`}},
		{"a day beyond the account", "[wallet]\nmax_amount_per_op = \"1\"\nmax_account_total = \"5\"\n",
			[]string{`:3:1: wallet.max_account_total = "5": must be daily_ceiling`}},
		{"an amount that is a number", "[wallet]\ndaily_ceiling = 5\n",
			[]string{`:2:1: wallet.daily_ceiling = 5: must be a quoted string`}},
		{"an amount that is none", "[wallet]\ndaily_ceiling = \"-5\"\n",
			[]string{`:2:1: wallet.daily_ceiling = "-5": `}},
		{"an amount beyond 128 bits", "[wallet]\nmax_account_total = \"340282366920938463463374607431768211456\"\n",
			[]string{":2:1: wallet.max_account_total = "}},
		{"a request that ends before its call", "[wallet]\nreq_timeout = \"900ms\"\n",
			[]string{`:2:1: wallet.req_timeout = "900ms": must be 1s..`}},
		{"room in flight below the queue", "[wallet]\nlimits.max_inflight = 512\n",
			[]string{`:2:8: wallet.limits.max_inflight = 512: must be 513..`}},
		{"shards that are no power of two", "[wallet]\nshards = 3\n",
			[]string{":2:1: wallet.shards = 3: must be a power of two"}},
		{"a drain that is too long", "[wallet]\ndrain_deadline = \"6s\"\n",
			[]string{`:2:1: wallet.drain_deadline = "6s": must be 1s..5s`}},
		{"another first nonce", "[wallet]\nnonce_start = 2\n", []string{":2:1: wallet.nonce_start = 2: must be 1"}},
		{"an unknown mode", "[wallet]\nnonce_mode = \"loose\"\n",
			[]string{`:2:1: wallet.nonce_mode = "loose": must be strict or monotonic`}},
		{"an asset that is none", "[wallet]\nassets = [\"ron\", \"Gold\"]\n",
			[]string{`:2:1: wallet.assets = "Gold": `}},
		{"no asset", "[wallet]\nassets = []\n", []string{`:2:1: wallet.assets`}},
		{"fewer operations under way than in a batch", "[wallet]\nbatch_inflight_ops = 100\n",
			[]string{":2:1: wallet.batch_inflight_ops = 100: must be 4096.."}},
		{"slots that outlive their keys", "[wallet]\nidempotency_ttl = \"10m\"\n",
			[]string{`default: ledger.slot_width = "15m": must be at most wallet.idempotency_ttl = "10m"`}},
		{"periods that are nowhere", "[ledger]\nperiods_local = false\n",
			[]string{`:2:1: ledger.periods_local = false: needs archive.target`}},
		{"an archive of a node in memory",
			"[amnesia]\nenabled = true\n[archive]\ntarget = \"file:///mnt/usb\"\nplaintext = true\n",
			[]string{`:4:1: archive.target = "file:///mnt/usb": must be empty with amnesia.enabled = true`}},
		{"an unknown depth", "[ledger]\nverify_on_open = \"some\"\n",
			[]string{`:2:1: ledger.verify_on_open = "some": must be none, tail or full`}},
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

// The edge keeps at least as much of the disk free as the store. The default follows a
// store.min_free that is raised alone.
func TestFreeSpace(t *testing.T) {
	for _, tt := range []struct {
		doc, file, want string // the fault; "": the file loads
	}{
		{"the defaults", "", ""},
		{"the store alone", "[store]\nmin_free = \"2GiB\"\n", ""},
		{"both the same", "[store]\nmin_free = \"1GiB\"\n[edge]\ncas.min_free = \"1GiB\"\n", ""},
		{"less than the default of the store", "[edge]\ncas.min_free = \"255MiB\"\n",
			`:2:5: edge.cas.min_free = "255MiB": must be at least store.min_free = "256MiB", below which the store refuses writes: raise it, or lower store.min_free`},
		{"less than the store", "[store]\nmin_free = \"1GiB\"\n[edge]\ncas.min_free = \"512MiB\"\n",
			`:4:5: edge.cas.min_free = "512MiB": must be at least store.min_free = "1GiB"`},
		{"without the edge", "[edge]\nenabled = false\ncas.min_free = \"0B\"\n", ""},
	} {
		cfg, err := Load(LoadOptions{File: write(t, tt.file)})
		if tt.want != "" && (err == nil || len(Faults(err)) != 1 || !strings.Contains(err.Error(), tt.want)) ||
			tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if err == nil && cfg.Edge.Enabled && cfg.Edge.CAS.MinFree < cfg.Store.MinFree {
			t.Errorf("%s: %s and %s", tt.doc, cfg.Edge.CAS.MinFree, cfg.Store.MinFree)
		}
	}
}

// SIGHUP reloads every key of the wallet and the ledger, except the keys that shape tables in
// memory.
func TestMoneyReloads(t *testing.T) {
	fixed := map[string]bool{
		"wallet.enabled":        true,
		"wallet.workers":        true,
		"wallet.worker_burst":   true,
		"wallet.nonce_start":    true,
		"wallet.shards":         true,
		"ledger.verify_on_open": true,
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
