package config

import (
	"encoding"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"pgregory.net/rapid"

	"ronbox/appliance/unit"
	"ronbox/engines"
)

// A valid configuration survives a round trip through TOML, through the output of Explain, and
// through variables.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		want := drawConfig(rt)
		want.Node.DataDir = dir
		text, err := toml.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		fromFile, err := Load(LoadOptions{File: write(t, string(text))})
		if err != nil {
			rt.Fatalf("%v in\n%s", err, text)
		}
		if !reflect.DeepEqual(fromFile, want) {
			rt.Fatalf("file gives %+v, want %+v", fromFile, want)
		}
		fromShown, err := Load(LoadOptions{File: write(t, shown(want))})
		if err != nil || !reflect.DeepEqual(fromShown, want) {
			rt.Fatalf("what is shown gives %+v (%v), want %+v", fromShown, err, want)
		}
		fromEnv, err := Load(LoadOptions{DataDir: dir, Env: environ(want)})
		if err != nil || !reflect.DeepEqual(fromEnv, want) {
			rt.Fatalf("variables give %+v (%v), want %+v", fromEnv, err, want)
		}
	})
}

// shown returns every key of c with its value, as Explain shows it.
func shown(c *Config) string {
	var b strings.Builder
	for _, l := range leaves(c) {
		fmt.Fprintf(&b, "%s = %s\n", l.key, l.shown())
	}
	return b.String()
}

func drawConfig(t *rapid.T) *Config {
	c := Default()
	c.Node.DrainCap = drawDuration(t, time.Second, 30*time.Second)
	c.Node.Predrain = drawDuration(t, 0, 5*time.Minute)
	c.Node.AbortGrace = drawDuration(t, 10*time.Millisecond, 5*time.Second)
	c.Server.Bind = fmt.Sprintf("127.0.0.1:%d", rapid.IntRange(0, 65535).Draw(t, "port"))
	c.Server.AdminOnTCP = rapid.Bool().Draw(t, "admin_on_tcp")
	c.Server.Trusted = rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.0/8", "fd00::/8", "192.0.2.1/32"}), 0, 3).
		Draw(t, "trusted")
	c.Server.CORS.AllowOrigins = rapid.SliceOfN(rapid.SampledFrom([]string{"https://a.example",
		"https://b.example:8443"}), 0, 1).
		Draw(t, "origins")
	c.UDS.AllowUIDs = rapid.SliceOfN(rapid.Uint32(), 0, 3).Draw(t, "allow_uids")
	c.UDS.Map = rapid.MapOfN(rapid.StringMatching(`(uid|gid):[1-9][0-9]{0,4}`),
		rapid.Just([]string{"registry.audit", "node.admin"}), 0, 3).
		Draw(t, "map")
	c.TLS.Enabled = rapid.Bool().Draw(t, "tls")
	c.TLS.CertPath, c.TLS.KeyPath = drawText(t), drawText(t)
	c.Auth.MaxTTL = drawDuration(t, time.Hour, 30*24*time.Hour)
	c.Auth.DefaultTTL = drawDuration(t, time.Second, c.Auth.MaxTTL.D())
	c.Store.MaxBytes = unit.Size(rapid.Int64Range(1<<30, 1<<40).Draw(t, "max_bytes"))
	c.Amnesia.Enabled = rapid.Bool().Draw(t, "amnesia")
	c.Amnesia.PurgeIntervalMS = rapid.IntRange(100, 60_000).Draw(t, "purge_interval_ms")
	c.Audit.Retain = rapid.IntRange(1, 1_000_000).Draw(t, "retain")
	c.Log.Format = rapid.SampledFrom([]string{"auto", "json", "text"}).Draw(t, "format")
	c.Log.Level = rapid.SampledFrom([]string{"trace", "debug", "info", "warn", "error", "off"}).Draw(t, "level")
	c.OTel.SampleReads = rapid.Float64Range(0, 1).Draw(t, "sample_reads")
	c.OTel.SampleWrites = float64(rapid.IntRange(0, 1).Draw(t, "sample_writes"))
	c.Metrics.NativeHistograms = rapid.Bool().Draw(t, "native")
	c.Registry.Enabled = rapid.Bool().Draw(t, "registry")
	c.Registry.Origin = rapid.StringMatching(`[a-z]{1,12}\.[a-z]{2,5}/[a-z0-9]{1,26}`).Draw(t, "origin")
	drawMoney(t, c)
	c.Registry.Bus.ChannelBound = rapid.IntRange(64, 65_536).Draw(t, "channel_bound")
	return c
}

// drawMoney draws values of the wallet and the ledger.
func drawMoney(t *rapid.T, c *Config) {
	w, l := &c.Wallet, &c.Ledger
	w.Enabled = rapid.Bool().Draw(t, "wallet")
	w.Assets = rapid.SliceOfN(rapid.StringMatching(`[a-z0-9]{1,16}`), 1, 3).Draw(t, "assets")
	w.Retry.RPCTimeout = drawDuration(t, 10*time.Millisecond, 10*time.Second)
	w.ReqTimeout = drawDuration(t, w.Retry.RPCTimeout.D(), time.Minute)
	w.Retry.Factor = rapid.Float64Range(1, 10).Draw(t, "factor")
	w.Shards = 1 << rapid.IntRange(0, 10).Draw(t, "shards")
	w.MaxOpenHolds = rapid.Uint64Range(0, 1<<62).Draw(t, "holds")
	w.Limits.MaxInflight = rapid.IntRange(513, 65_536).Draw(t, "max_inflight")
	amounts := rapid.SliceOfN(rapid.Uint64Min(1), 3, 3).Draw(t, "amounts")
	slices.Sort(amounts)
	high := rapid.Uint64().Draw(t, "high")
	w.MaxAmountPerOp, w.DailyCeiling, w.MaxAccountTotal = engines.AmountOf(high, amounts[0]), engines.AmountOf(
		high,
		amounts[1],
	), engines.AmountOf(high, amounts[2])
	w.IdempotencyTTL = drawDuration(t, time.Minute, 72*time.Hour)
	l.SlotWidth = drawDuration(t, time.Minute, min(w.IdempotencyTTL.D(), time.Hour))
	l.FlushSlice = rapid.IntRange(1, 65_536).Draw(t, "flush_slice")
	l.VerifyOnOpen = rapid.SampledFrom([]string{"none", "tail", "full"}).Draw(t, "verify_on_open")
}

// drawText draws an absolute path with arbitrary characters other than NUL.
func drawText(t *rapid.T) string {
	return "/" + strings.ReplaceAll(rapid.StringN(0, 12, 40).Draw(t, "text"), "\x00", "")
}

func drawDuration(t *rapid.T, lo, hi time.Duration) unit.Duration {
	return unit.Duration(rapid.Int64Range(int64(lo), int64(hi)).Draw(t, "duration"))
}

// environ returns one variable for every key of c.
func environ(c *Config) []string {
	var out []string
	for _, l := range leaves(c) {
		out = append(out, variableOf(l))
	}
	return out
}

// variableOf formats a leaf as a variable: a string unquoted, a list with commas, any other value
// as in TOML.
func variableOf(l leaf) string {
	text := l.text()
	switch v := l.value.Interface().(type) {
	case encoding.TextMarshaler:
		b, _ := v.MarshalText()
		text = string(b)
	case []string:
		text = strings.Join(v, ",")
	case string:
		text = v
	}
	return envName(l.key) + "=" + text
}

// The commented file names every key once, with its default, and no other key.
func TestTemplateIsEveryDefault(t *testing.T) {
	plain := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(Template(nil), "$1")
	entries, err := parseFile(FileName, []byte(plain),
		func(key string) bool { return find(leaves(Default()), key) != nil })
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for _, e := range entries {
		written[e.key] = true
	}
	for _, l := range leaves(Default()) {
		if !written[l.key] {
			t.Errorf("%s is not in the file", l.key)
		}
	}
	cfg, err := Load(LoadOptions{File: write(t, plain)})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cfg, Default()) {
		t.Errorf("the file says %+v, the defaults are %+v", cfg, Default())
	}
}

func TestTemplateSets(t *testing.T) {
	cfg, err := Load(LoadOptions{File: write(t, Template(map[string]string{"registry.origin": "ronbox.local/x"}))})
	if err != nil || cfg.Registry.Origin != "ronbox.local/x" {
		t.Errorf("origin %+v, %v", cfg, err)
	}
}

// The loader never panics, and each of its errors is a fault that names a place.
func FuzzConfig(f *testing.F) {
	f.Add("[server]\nbind = \"127.0.0.1:0\"\n", "x")
	f.Add("[registry]\nbus = {channel_bound = 1, emit_updates = 3}\n[a.b]\nc = [1, {d = 2}]\n", "1")
	f.Add("[[node]]\n", "true")
	f.Add("\"a.b\".c = 1979-05-27T07:32:00Z", "{ a = 1 }")
	f.Add(Template(nil), "[")
	f.Add("[uds.map]\n\"uid:5\" = [\"a\"]\n", "1, 2")
	f.Add("uds = { map = { \"gid:5\" = [] } }", "{ \"uid:1\" = [\"x\"] }")
	f.Fuzz(func(t *testing.T, text, value string) {
		l := newLoader()
		l.document(FileName, []byte(text))
		l.variables(l.environment([]string{
			"RONBOX_NODE__PREDRAIN=" + value,
			"RONBOX_SERVER__METRICS_ALLOW=" + value,
			"RONBOX_UDS__ALLOW_UIDS=" + value,
			"RONBOX_UDS__MAP=" + value,
			"RONBOX_OTEL__SAMPLE_READS=" + value,
			"RONBOX_STORE__MAX_BYTES=" + value,
		}))
		l.validate()
		if len(Faults(errors.Join(l.faults...))) != len(l.faults) {
			t.Errorf("%q is refused without a place: %v", text, l.faults)
		}
		if len(l.faults) > 0 {
			return
		}
		again := newLoader()
		again.document(FileName, []byte(shown(l.cfg)))
		if len(again.faults) > 0 || len(Diff(l.cfg, again.cfg)) > 0 {
			t.Errorf("%q and %q are shown as what is not the same: %v", text, value, again.faults)
		}
	})
}

// entryOf returns the entry of a key.
func entryOf(t *testing.T, all []Entry, key string) Entry {
	t.Helper()
	for _, e := range all {
		if e.Key == key {
			return e
		}
	}
	t.Fatalf("%s is not explained", key)
	return Entry{}
}

// Explain lists every key once, in order, with the origin of its value and its reload class.
func TestExplain(t *testing.T) {
	file := write(t, "[server]\nbind = \"file:1\"\nmax_conns = 5\n[uds.map]\n\"uid:1000\" = [\"node.token\"]\n")
	cfg, all, err := Explain(LoadOptions{
		File:    file,
		DataDir: "/d",
		Env:     []string{"RONBOX_SERVER__MAX_CONNS=6", "RONBOX_UDS__ALLOW_UIDS=1,2", "RONBOX_LOG__LEVEL=debug"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(leaves(cfg)) || cfg.Server.MaxConns != 6 {
		t.Errorf("%d entries of %d keys", len(all), len(leaves(cfg)))
	}
	for _, want := range []Entry{
		{"node.data_dir", `"/d"`, `"/var/lib/ronbox"`, FromFlag, "flag --data-dir", ReloadRestart},
		{"node.predrain", `"0s"`, `"0s"`, FromDefault, "", ReloadInPlace},
		{"server.bind", `"file:1"`, `"127.0.0.1:8080"`, FromFile, file + ":2:1", ReloadRebind},
		{"server.max_conns", "6", "1024", FromEnv, "RONBOX_SERVER__MAX_CONNS", ReloadInPlace},
		{"uds.map", `{ "uid:1000" = ["node.token"] }`, "{}", FromFile, file + ":4:6", ReloadInPlace},
		{"uds.allow_uids", "[1, 2]", "[]", FromEnv, "RONBOX_UDS__ALLOW_UIDS", ReloadRebind},
		{"log.level", `"debug"`, `"info"`, FromEnv, "RONBOX_LOG__LEVEL", ReloadInPlace},
		{"otel.sample_writes", "1.0", "1.0", FromDefault, "", ReloadInPlace},
		{"metrics.native_histograms", "false", "false", FromDefault, "", ReloadRestart},
	} {
		if got := entryOf(t, all, want.Key); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if _, all, err := Explain(LoadOptions{File: write(t, "[zebra]\n")}); err == nil || all != nil {
		t.Errorf("a bad file is explained: %v, %v", all, err)
	}
}

// Diff returns exactly the keys that were changed.
func TestDiff(t *testing.T) {
	old, next := Default(), Default()
	if got := Diff(old, next); len(got) != 0 {
		t.Errorf("no change gives %v", got)
	}
	next.Server.Trusted = nil // equal to an empty list
	next.Server.Bind = "127.0.0.1:9"
	next.Node.DataDir = "/x"
	next.UDS.Map = map[string][]string{"gid:5": {"edge.fill", "node.drain"}}
	want := []Change{
		{"node.data_dir", `"/var/lib/ronbox"`, `"/x"`, ReloadRestart},
		{"server.bind", `"127.0.0.1:8080"`, `"127.0.0.1:9"`, ReloadRebind},
		{"uds.map", "{}", `{ "gid:5" = ["edge.fill", "node.drain"] }`, ReloadInPlace},
	}
	if got := Diff(old, next); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// Setting the keys that Diff returns turns the old configuration into the new one.
func TestDiffIsWhole(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		old, next := drawConfig(rt), drawConfig(rt)
		old.Node.DataDir, next.Node.DataDir = dir, dir
		var text strings.Builder
		text.WriteString(shown(old))
		file := filepath.Join(dir, FileName)
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			rt.Fatal(err)
		}
		var env []string
		for _, c := range Diff(old, next) {
			l := find(leaves(next), c.Key)
			if c.To != l.shown() || c.From == c.To {
				rt.Fatalf("%+v", c)
			}
			env = append(env, variableOf(*l))
		}
		got, err := Load(LoadOptions{File: file, Env: env})
		if err != nil || !reflect.DeepEqual(got, next) {
			rt.Fatalf("%v: %v", err, Diff(got, next))
		}
	})
}

// The value of a secret is never shown.
func TestSecretsAreHidden(t *testing.T) {
	value := reflect.ValueOf(new("hunter2")).Elem()
	if got := (leaf{key: "a.idempotency_salt", value: value}).shown(); got != hidden {
		t.Errorf("a salt is shown as %s", got)
	}
	if got := (leaf{key: "a.key_path", value: value}).shown(); got != `"hunter2"` {
		t.Errorf("a path is shown as %s", got)
	}
}

// Each key has one of three reload classes. Keys that are read only at startup need a restart.
func TestReloadClasses(t *testing.T) {
	class := map[string]string{}
	for _, l := range leaves(Default()) {
		if class[l.key] = l.reload; l.reload != ReloadInPlace && l.reload != ReloadRebind && l.reload != ReloadRestart {
			t.Errorf("%s has the class %q", l.key, l.reload)
		}
	}
	for key, want := range map[string]string{
		"server.max_header": ReloadRestart, "server.acceptors": ReloadRestart,
		"node.data_dir": ReloadRestart, "node.drain_cap": ReloadInPlace, "server.bind": ReloadRebind,
		"server.read_timeout": ReloadRebind,
		"server.max_conns":    ReloadInPlace, "server.cors.allow_origins": ReloadInPlace, "tls.enabled": ReloadRebind,
		"tls.cert_path": ReloadInPlace, "uds.path": ReloadRebind, "uds.map": ReloadInPlace,
		"auth.max_ttl": ReloadInPlace, "amnesia.enabled": ReloadRestart,
		"amnesia.purge_interval_ms": ReloadInPlace, "store.max_bytes": ReloadRestart, "store.group_max": ReloadInPlace,
		"log.format":   ReloadInPlace,
		"audit.retain": ReloadInPlace, "otel.exporter": ReloadInPlace, "metrics.openmetrics": ReloadInPlace,
		"registry.limits.rps":        ReloadInPlace,
		"registry.bus.channel_bound": ReloadRestart, "registry.queues.proposals": ReloadRestart,
		"registry.bootstrap.trust_roots_hash": ReloadRestart,
		"cluster.heartbeat":                   ReloadRestart, "cluster.outage_reads": ReloadInPlace,
	} {
		if class[key] != want {
			t.Errorf("%s is %q, want %q", key, class[key], want)
		}
	}
}
