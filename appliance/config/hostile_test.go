package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"ronbox/appliance/obs"
)

// A quoted key with a point in it is one key of that name, which is none of ours, and not two of which either may win.
func TestQuotedKeysAreNoPaths(t *testing.T) {
	for file, want := range map[string]string{
		"\"server.bind\" = \"127.0.0.1:1\"\n":                                   `:1:1: "server.bind": unknown key`,
		"\"server.bind\" = \"127.0.0.1:1\"\nserver.bind = \"127.0.0.1:2\"\n":    `:1:1: "server.bind": unknown key`,
		"[server]\n\"cors.allow_origins\" = [\"https://a.example\"]\n":          `:2:1: server."cors.allow_origins": unknown key`,
		"[\"registry.limits\"]\nrps = 1\n":                                      `:2:1: "registry.limits".rps: unknown key`,
		"uds = { \"map.uid\" = [] }\n":                                          `:1:9: uds."map.uid": unknown key`,
		"[uds.map]\n\"uid:5\" = [\"a.b\"]\n\"gid:5.x\" = 7\n":                   `:3:1: uds.map`,
		"[server]\n\"bind\" = 5\n":                                              ":2:1: server.bind = 5: must be a quoted string",
		"[server]\n\"a\\nb\\u001b[2J\" = 5\n":                                   `:2:1: server."a\u000Ab\u001B[2J": unknown key`,
		"[zebra]\n\"\" = 5\n":                                                   `:2:1: zebra."": unknown key`,
		"[server]\ncors = { \"allow_origins.x\" = 1, allow_methods = [\"?\"] }": `:2:10: server.cors."allow_origins.x": unknown key`,
	} {
		_, err := Load(LoadOptions{File: write(t, file)})
		if f := Faults(err); len(f) == 0 || !strings.Contains(f[0].Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}

// A known name in the wrong section, or in none, is what is forgotten most.
func TestSuggestionsAcrossSections(t *testing.T) {
	for file, want := range map[string]string{
		"max_conns = 5\n":                      "did you mean server.max_conns?",
		"[node]\nmax_conns = 5\n":              "did you mean server.max_conns?",
		"[registry]\nrps = 5\n":                "did you mean registry.limits.rps?",
		"[servr]\n":                            "did you mean server?",
		"[otell]\nexporter = \"otlp\"\n":       "did you mean otel.exporter?",
		"[registry.limit]\n":                   "did you mean registry.limits?",
		"enabled = true\n":                     "enabled: unknown key",
		"[server]\nmax_connections = 5\n":      "did you mean server.max_conns?",
		"[server.cors]\nallow_origin = [\"\"]": "did you mean server.cors.allow_origins?",
	} {
		_, err := Load(LoadOptions{File: write(t, file)})
		if f := Faults(err); len(f) != 1 || !strings.Contains(f[0].Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		} else if strings.HasPrefix(want, "enabled") && strings.Contains(f[0].Reason, "mean") {
			t.Errorf("%q: one of several: %v", file, err)
		}
	}
}

// A fault names the variable as it was written.
func TestVariablesAreNamedAsWritten(t *testing.T) {
	for variable, want := range map[string]string{
		"RONBOX_SERVER__CORS.ALLOW_ORIGINS=x": "RONBOX_SERVER__CORS.ALLOW_ORIGINS: ",
		"RONBOX_SERVER__\x1b[2J=x":            `RONBOX_SERVER__\x1b[2J: `,
		"RONBOX_SERVER__=x":                   "RONBOX_SERVER__: ",
		"RONBOX___BIND=x":                     "RONBOX___BIND: ",
	} {
		_, err := Load(LoadOptions{DataDir: "/d", Env: []string{variable}})
		if f := Faults(err); len(f) != 1 || !strings.HasPrefix(f[0].Error(), want) || !strings.Contains(f[0].Reason, "unknown key") {
			t.Errorf("%q: %v, want %s", variable, err, want)
		}
	}
}

// No fault of a secret shows what it was set to, not even in words of whoever refused it.
func TestFaultsHideSecrets(t *testing.T) {
	var v struct {
		S obs.Secret
		N int
	}
	field := reflect.ValueOf(&v).Elem()
	l := newLoader()
	l.all = append(l.all, leaf{key: "a.salt", value: field.Field(1)})
	l.set("a.salt", origin{where: "w"}, func(dst reflect.Value) error { return assignText(dst, "hunter2") }, quote("hunter2"))
	l.all = append(l.all, leaf{key: "b.seed", value: field.Field(0)})
	l.faults = append(l.faults, l.place("b", errHunter{}))
	for _, f := range l.faults {
		if strings.Contains(f.Error(), "hunter2") || !strings.Contains(f.Error(), hidden) {
			t.Errorf("%v", f)
		}
	}
}

type errHunter struct{}

func (errHunter) Error() string { return `seed = "hunter2": must not be "hunter2"` }

// Whatever text init puts into the file comes out of it.
func TestTemplateSetsAnyText(t *testing.T) {
	for _, text := range []string{`a"b\c`, "tab\there", "bell\a", "é\u2028", "del\x7f", "nl\n#x"} {
		cfg, err := Load(LoadOptions{File: write(t, Template(map[string]string{"store.snapshot_dir": text}))})
		if err != nil || cfg.Store.SnapshotDir != text {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The value of a fault is the one at fault, as TOML has it, whatever stands in it and however its section words it.
func TestFaultsTellTheValue(t *testing.T) {
	for _, tt := range []struct{ file, value, reason string }{
		{"otel.endpoint = \"x: y = z\"\n", `"x: y = z"`, "must be a URL"},
		{"otel.endpoint = \"a\\\"b: c\"\n", `"a\"b: c"`, "must be a URL"},
		{"server.read_timeout = \"1ms\"\n", `"1ms"`, "must be 100ms.."},
		{"server.max_body_bytes = \"1B\"\n", `"1B"`, "must be 1KiB.."},
		{"auth.rotate = \"1s\"\n", `"1s"`, "must be 1h..30d"},
		{"server.bind = \"::: \"\n", `"::: "`, "must be host:port"},
		{"server.max_conns = 0\n", "0", "must be 1.."},
		{"otel.sample_reads = nan\n", "NaN", "must be 0..1"},
		{"server.max_conns = nan\n", "nan", "must be a whole number"},
		{"server.max_conns = -inf\n", "-inf", "must be a whole number"},
		{"log.level = \"a: b\"\n", `"a: b"`, "must be trace"},
		{"registry.origin = \"a b: c\"\n", `"a b: c"`, "must be a URL without"},
	} {
		_, err := Load(LoadOptions{File: write(t, tt.file)})
		if f := Faults(err); len(f) != 1 || f[0].Value != tt.value || !strings.HasPrefix(f[0].Reason, tt.reason) {
			t.Errorf("%q: %+v, %v", tt.file, f, err)
		}
	}
}

// A file of nonsense, however made, is refused soon and in few words.
func TestNonsenseIsRefusedInFewWords(t *testing.T) {
	long := strings.Repeat("a", 1<<18)
	for doc, file := range map[string]string{
		"a long key": long + " = 1\n", "a long path": strings.Repeat("a.", 1<<16) + "a = 1\n", "a deep table": "[" + strings.Repeat("a.", 1<<16) + "a]\nb = 1\n",
		"a long quoted key": "\"" + strings.Repeat("é ", 1<<16) + "\" = 1\n", "a long value": "server.bind = [\"" + long + "\"]\n",
		"a long text": "server.read_timeout = \"" + long + "\"\n", "a long member": "uds.map." + long + " = 1\n", "a long bind": "server.bind = \"" + long + "\"\n",
	} {
		_, err := Load(LoadOptions{File: write(t, file)})
		f := Faults(err)
		if len(f) != 1 || len(err.Error()) > 4<<10 || strings.Contains(f[0].Where, ":0:0") || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: %d faults in %d bytes, %.500v", doc, len(f), len(fmt.Sprint(err)), err)
		}
	}
}
