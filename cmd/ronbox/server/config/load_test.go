package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write writes a configuration file to a new directory and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadRefuses(t *testing.T) {
	for _, tt := range []struct {
		doc, file string
		env       []string
		want      []string // one fragment for each fault, in order
	}{
		{doc: "an unknown key, with what was meant", file: "[store]\nmax_byts = \"1GiB\"\n",
			want: []string{`ronbox.toml:2:1: store.max_byts: unknown key, did you mean store.max_bytes?`}},
		{doc: "an unknown section", file: "[zebra]\n", want: []string{"ronbox.toml:1:2: zebra: unknown key"}},
		{doc: "a key of another level", file: "bind = \"x:1\"\n", want: []string{":1:1: bind: unknown key"}},
		{doc: "a section as a value", file: "server = 5\n", want: []string{":1:1: server: is a section, not a value"}},
		{doc: "a wrong type", file: "[server]\nbind = 8080\n",
			want: []string{`:2:1: server.bind = 8080: must be a quoted string`}},
		{doc: "a wrong type in a dotted key", file: "[registry]\nbus.emit_updates = \"yes\"\n",
			want: []string{`:2:5: registry.bus.emit_updates = "yes": must be true or false`}},
		{doc: "a wrong type in an inline table", file: "[registry]\nbus = {channel_bound = 1024,emit_updates = 3}\n",
			want: []string{`:2:29: registry.bus.emit_updates = 3: must be true or false`}},
		{doc: "a bad duration", file: "[node]\ndrain_cap = \"soon\"\n",
			want: []string{`:2:1: node.drain_cap = "soon": `}},
		{doc: "a value out of range", file: "[node]\n\n  drain_cap = \"99h\"\n",
			want: []string{`:3:3: node.drain_cap = "99h": must be 1s..30s`}},
		{doc: "a number too large for its field", file: "[server]\nmax_conns = 9223372036854775808\n",
			want: []string{":2:"}},
		{doc: "a syntax error", file: "[node\n", want: []string{"ronbox.toml:1:"}},
		{doc: "a key given twice", file: "[node]\npredrain=\"1s\"\npredrain=\"2s\"\n", want: []string{":3:"}},
		{doc: "every fault at once, in the order of the file",
			file: "[server]\nbind = 1\nmax_conns = \"many\"\nzzz = 1\n[node]\npredrain = \"99h\"\n",
			want: []string{":2:1: server.bind", ":3:1: server.max_conns", ":4:1: server.zzz", ":6:1: node.predrain"}},
		{doc: "an unknown variable", env: []string{"RONBOX_SERVER__BLIND=x:1"},
			want: []string{"RONBOX_SERVER__BLIND: server.blind: unknown key, did you mean server.bind?"}},
		{doc: "a variable with one underscore", env: []string{"RONBOX_SERVER_BIND=x:1"},
			want: []string{"RONBOX_SERVER_BIND: unknown key, did you mean RONBOX_SERVER__BIND?"}},
		{doc: "a variable of the wrong type", env: []string{"RONBOX_SERVER__MAX_CONNS=lots"},
			want: []string{`RONBOX_SERVER__MAX_CONNS: server.max_conns = "lots": must be a whole number`}},
		{doc: "a variable out of range", env: []string{"RONBOX_NODE__DRAIN_CAP=1ms"},
			want: []string{`RONBOX_NODE__DRAIN_CAP: node.drain_cap = "1ms": must be`}},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			_, err := Load(LoadOptions{File: write(t, tt.file), Env: tt.env})
			faults := Faults(err)
			if len(faults) != len(tt.want) {
				t.Fatalf("%d faults, want %d:\n%v", len(faults), len(tt.want), err)
			}
			for i, f := range faults {
				if !strings.Contains(f.Error(), tt.want[i]) {
					t.Errorf("fault %d is %q, want it to have %q", i, f, tt.want[i])
				}
			}
		})
	}
}

func TestLaterPlacesWin(t *testing.T) {
	file := write(t, "[server]\nbind = \"file:1\"\n[node]\npredrain = \"1s\"\nabort_grace = \"1s\"\n")
	cfg, err := Load(LoadOptions{
		File: file,
		Env:  []string{"RONBOX_SERVER__BIND=env:1", "RONBOX_NODE__PREDRAIN=2s", "RONBOX_TOKEN_FILE=x", "HOME=/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Server.Bind != "env:1" || cfg.Node.Predrain.D() != 2*time.Second || cfg.Node.AbortGrace.D() != time.Second {
		t.Errorf("bind %s, predrain %s, abort_grace %s", cfg.Server.Bind, cfg.Node.Predrain, cfg.Node.AbortGrace)
	}
}

// The data directory selects the file to read. If the caller named the directory, node.data_dir in
// that file does not change it.
func TestDataDirectory(t *testing.T) {
	file := write(t, "[node]\ndata_dir = \"/elsewhere\"\n[server]\nbind = \"file:1\"\n")
	dir := filepath.Dir(file)
	for _, o := range []LoadOptions{{DataDir: dir},
		{Env: []string{"RONBOX_NODE__DATA_DIR=" + dir}}} {
		cfg, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Node.DataDir != dir || cfg.Server.Bind != "file:1" {
			t.Errorf("%+v: data_dir %s, bind %s", o, cfg.Node.DataDir, cfg.Server.Bind)
		}
		if got, want := cfg.SocketPath(), filepath.Join(dir, "admin.sock"); got != want {
			t.Errorf("socket %s, want %s", got, want)
		}
	}
}

func TestNamedFileMustExist(t *testing.T) {
	if _, err := Load(LoadOptions{File: filepath.Join(t.TempDir(), "none.toml")}); err == nil {
		t.Error("a named file that is not there was passed over")
	}
	if _, err := Load(LoadOptions{DataDir: t.TempDir()}); err != nil {
		t.Errorf("no file at all: %v", err)
	}
}

// A relative socket path is relative to the data directory, not to the current directory. A socket
// path that is too long is a fault.
func TestSocketPath(t *testing.T) {
	cfg, err := Load(LoadOptions{DataDir: "/d", Env: []string{"RONBOX_UDS__PATH=run/x.sock"}})
	if err != nil || cfg.SocketPath() != "/d/run/x.sock" {
		t.Errorf("%v, %v", cfg, err)
	}
	long := "/" + strings.Repeat("d", 100)
	_, err = Load(LoadOptions{DataDir: long})
	if f := Faults(err); len(f) != 1 || f[0].Key != "uds.path" || !strings.Contains(f[0].Reason, "at most") {
		t.Errorf("a data directory with a long name: %v", err)
	}
	if _, err := Load(LoadOptions{DataDir: long, Env: []string{"RONBOX_UDS__PATH=/run/x.sock"}}); err != nil {
		t.Errorf("the same with a socket elsewhere: %v", err)
	}
}

// The error of an unreadable file wraps its cause. A data directory that is a file has no
// configuration file, which is not an error.
func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(LoadOptions{DataDir: filepath.Join(dir, "f")}); err != nil {
		t.Errorf("a data directory that is a file: %v", err)
	}
	_, err := Load(LoadOptions{File: dir})
	if !errors.Is(err, syscall.EISDIR) || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("a directory as the file: %v", err)
	}
}

// The defaults are valid, and every key can be set in a file and in a variable.
func TestDefaultsHold(t *testing.T) {
	if err := Validate(Default()); err != nil {
		t.Error(err)
	}
	for _, l := range leaves(Default()) {
		if !l.value.CanSet() || l.key != strings.ToLower(l.key) || strings.Contains(l.key, "__") {
			t.Errorf("key %s cannot be written in every place", l.key)
		}
	}
}

func TestTextForms(t *testing.T) {
	var v struct {
		S []string
		N []int
		M map[string][]string
		F float64
		U uint16
	}
	field := reflect.ValueOf(&v).Elem()
	for i, text := range []string{"a, b", "[1, 2]", `{ "1000" = ["node.admin"] }`, "0.5", "65535"} {
		if err := assignText(field.Field(i), text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if len(v.S) != 2 || v.S[1] != "b" || v.N[1] != 2 || v.M["1000"][0] != "node.admin" || v.F != 0.5 || v.U != 65535 {
		t.Errorf("%+v", v)
	}
	for i, text := range []string{"[1]", "a,b", "x", "NaN", "65536"} {
		if err := assignText(field.Field(i), text); err == nil {
			t.Errorf("%s was taken as %s", text, field.Type().Field(i).Type)
		}
	}
}

// A quoted key with a dot in it is a single key, which is unknown. It is not a path to another key.
func TestQuotedKeysAreNoPaths(t *testing.T) {
	for file, want := range map[string]string{
		"\"server.bind\" = \"127.0.0.1:1\"\n":                                `:1:1: "server.bind": unknown key`,
		"\"server.bind\" = \"127.0.0.1:1\"\nserver.bind = \"127.0.0.1:2\"\n": `:1:1: "server.bind": unknown key`,
		"[server]\n\"cors.allow_origins\" = [\"https://a.example\"]\n":       `:2:1: server."cors.allow_origins": unknown key`,
		"[\"registry.limits\"]\nrps = 1\n":                                   `:2:1: "registry.limits".rps: unknown key`,
		"uds = { \"map.uid\" = [] }\n":                                       `:1:9: uds."map.uid": unknown key`,
		"[uds.map]\n\"uid:5\" = [\"a.b\"]\n\"gid:5.x\" = 7\n":                `:3:1: uds.map`,
		"[server]\n\"bind\" = 5\n": ":2:1: server.bind = 5: must be a " +
			"quoted string",
		"[server]\n\"a\\nb\\u001b[2J\" = 5\n": `:2:1: server."a\u000Ab\u001B[2J": unknown key`,
		"[zebra]\n\"\" = 5\n":                 `:2:1: zebra."": unknown key`,
		"[server]\ncors = { \"allow_origins.x\" = 1, allow_methods = [\"?\"] }": `:2:10: server.cors."allow_origins.x": unknown key`,
	} {
		_, err := Load(LoadOptions{File: write(t, file)})
		if f := Faults(err); len(f) == 0 || !strings.Contains(f[0].Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}

// A known name in the wrong section, or outside any section, is suggested with its section.
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
		if f := Faults(err); len(f) != 1 || !strings.HasPrefix(f[0].Error(), want) ||
			!strings.Contains(f[0].Reason, "unknown key") {
			t.Errorf("%q: %v, want %s", variable, err, want)
		}
	}
}

// A fault of a secret never shows the value, not even in the text of the error that it wraps.
func TestFaultsHideSecrets(t *testing.T) {
	var v struct {
		S string
		N int
	}
	field := reflect.ValueOf(&v).Elem()
	l := newLoader()
	l.all = append(l.all, leaf{key: "a.salt", value: field.Field(1)})
	l.set("a.salt", origin{where: "w"}, func(dst reflect.Value) error { return assignText(dst, "hunter2") },
		quote("hunter2"))
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

// A template returns any text that was set in it, once it is loaded.
func TestTemplateSetsAnyText(t *testing.T) {
	for _, text := range []string{`a"b\c`, "tab\there", "bell\a", "é\u2028", "del\x7f", "nl\n#x"} {
		cfg, err := Load(LoadOptions{File: write(t, Template(map[string]string{"store.snapshot_dir": text}))})
		if err != nil || cfg.Store.SnapshotDir != text {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A fault has the invalid value as TOML writes it, whatever characters the value has and whatever
// the error of its section looks like.
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

// A bind address that other hosts can reach without TLS is a fault of server.bind, unless
// server.plaintext is set.
func TestPlaintextIsAFault(t *testing.T) {
	const everywhere = "server.bind = \"0.0.0.0:8080\"\n"
	for file, want := range map[string]string{
		everywhere: "server.bind", everywhere + "server.plaintext = true\n": "", "server.plaintext = false\n": "",
		everywhere + "[tls]\nenabled = true\ncert_path = \"c\"\nkey_path = \"k\"\n": "",
	} {
		_, err := Load(LoadOptions{File: write(t, file)})
		f := Faults(err)
		if want == "" && err != nil ||
			want != "" && (len(f) != 1 || f[0].Key != want || !strings.Contains(f[0].Reason, "server.plaintext")) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// A file with an overlong key or value has one fault, with a short message.
func TestNonsenseIsRefusedInFewWords(t *testing.T) {
	long := strings.Repeat("a", 1<<18)
	for doc, file := range map[string]string{
		"a long key": long + " = 1\n", "a long path": strings.Repeat("a.",
			1<<16) + "a = 1\n", "a deep table": "[" + strings.Repeat("a.", 1<<16) + "a]\nb = 1\n",
		"a long quoted key": "\"" + strings.Repeat("é ",
			1<<16) + "\" = 1\n", "a long value": "server.bind = [\"" + long + "\"]\n",
		"a long text": "server.read_timeout = \"" + long + "\"\n", "a long member": "uds.map." + long + " = 1\n",
		"a long bind": "server.bind = \"" + long + "\"\n",
	} {
		_, err := Load(LoadOptions{File: write(t, file)})
		f := Faults(err)
		if len(f) != 1 || len(err.Error()) > 4<<10 || strings.Contains(f[0].Where, ":0:0") ||
			!utf8.ValidString(err.Error()) {
			t.Errorf("%s: %d faults in %d bytes, %.500v", doc, len(f), len(fmt.Sprint(err)), err)
		}
	}
}

// Retired keys of the previous release still load. Each is named in a warning.
func TestRetiredKeys(t *testing.T) {
	file := write(t, "[wallet]\nnonce_wait = \"50ms\"\nnonce_pipeline = 64\nbalance_cache_bytes = \"32MiB\"\n"+
		"staleness_window = \"250ms\"\n")
	cfg, err := Load(LoadOptions{File: file, Env: []string{"RONBOX_WALLET__NONCE_WAIT=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		file + ":2:1: wallet.nonce_wait has", file + ":3:1: wallet.nonce_pipeline has",
		file + ":4:1: wallet.balance_cache_bytes has",
		file + ":5:1: wallet.staleness_window has",
		"RONBOX_WALLET__NONCE_WAIT: wallet.nonce_wait has",
	}
	if len(cfg.Warnings) != len(want) {
		t.Fatalf("%q", cfg.Warnings)
	}
	for i, w := range cfg.Warnings {
		if !strings.HasPrefix(w, want[i]) {
			t.Errorf("%s, want %s", w, want[i])
		}
	}
}
