package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/obs"
)

// entryOf finds the entry of one key.
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

// Every key is there once, in order, with where its value comes from and what its change takes.
func TestExplain(t *testing.T) {
	file := write(t, "[server]\nbind = \"file:1\"\nmax_conns = 5\n[uds.map]\n\"uid:1000\" = [\"node.read\"]\n")
	cfg, all, err := Explain(LoadOptions{
		File: file, DataDir: "/d", Env: []string{"RONBOX_SERVER__MAX_CONNS=6", "RONBOX_UDS__ALLOW_UIDS=1,2", "RONBOX_LOG__LEVEL=debug"},
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
		{"uds.map", `{ "uid:1000" = ["node.read"] }`, "{}", FromFile, file + ":4:6", ReloadInPlace},
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

// Two configurations differ in just the keys that were changed.
func TestDiff(t *testing.T) {
	old, next := Default(), Default()
	if got := Diff(old, next); len(got) != 0 {
		t.Errorf("no change gives %v", got)
	}
	next.Server.Trusted = nil // an empty list is an empty list
	next.Server.Bind = "127.0.0.1:9"
	next.Node.DataDir = "/x"
	next.UDS.Map = map[string][]string{"gid:5": {"a.b", "c.d"}}
	want := []Change{
		{"node.data_dir", `"/var/lib/ronbox"`, `"/x"`, ReloadRestart},
		{"server.bind", `"127.0.0.1:8080"`, `"127.0.0.1:9"`, ReloadRebind},
		{"uds.map", "{}", `{ "gid:5" = ["a.b", "c.d"] }`, ReloadInPlace},
	}
	if got := Diff(old, next); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// Applying what Diff says gives the other configuration.
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

// A secret is a secret in every place that shows values.
func TestSecretsAreHidden(t *testing.T) {
	var v struct {
		Plain obs.Secret
		Named string
	}
	v.Plain, v.Named = "hunter2", "hunter2"
	field := reflect.ValueOf(&v).Elem()
	for _, l := range []leaf{{key: "a.plain", value: field.Field(0)}, {key: "a.idempotency_salt", value: field.Field(1)}} {
		if got := l.shown(); got != hidden {
			t.Errorf("%s shows %s", l.key, got)
		}
	}
	if l := (leaf{key: "a.key_path", value: field.Field(1)}); l.shown() != `"hunter2"` {
		t.Error("a path is no secret")
	}
}

// Each key's class is one of three, and what the node is built around needs a restart.
func TestReloadClasses(t *testing.T) {
	class := map[string]string{}
	for _, l := range leaves(Default()) {
		if class[l.key] = l.reload; l.reload != ReloadInPlace && l.reload != ReloadRebind && l.reload != ReloadRestart {
			t.Errorf("%s has the class %q", l.key, l.reload)
		}
	}
	for key, want := range map[string]string{
		"node.data_dir": ReloadRestart, "node.drain_cap": ReloadInPlace, "server.bind": ReloadRebind, "server.read_timeout": ReloadRebind,
		"server.max_conns": ReloadInPlace, "server.cors.allow_origins": ReloadInPlace, "tls.enabled": ReloadRebind,
		"tls.cert_path": ReloadInPlace, "uds.path": ReloadRebind, "uds.map": ReloadInPlace, "auth.max_ttl": ReloadInPlace, "amnesia.enabled": ReloadRestart,
		"amnesia.purge_interval_ms": ReloadInPlace, "store.max_bytes": ReloadRestart, "store.group_max": ReloadInPlace, "log.format": ReloadInPlace,
		"audit.retain": ReloadInPlace, "otel.exporter": ReloadInPlace, "metrics.openmetrics": ReloadInPlace, "registry.limits.rps": ReloadInPlace,
		"registry.bus.channel_bound": ReloadRestart, "registry.queues.proposals": ReloadRestart, "registry.bootstrap.trust_roots_hash": ReloadRestart,
	} {
		if class[key] != want {
			t.Errorf("%s is %q, want %q", key, class[key], want)
		}
	}
}
