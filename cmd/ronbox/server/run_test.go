package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/checkup"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Init and serve are a working node: over TCP with the token it made, and over the socket.
func TestDevNodeWorks(t *testing.T) {
	cfg, res := devConfig(t)
	for _, f := range []struct {
		path string
		mode os.FileMode
	}{
		{res.DataDir, 0o700}, {res.TokenFile, 0o600}, {res.SignerKey, 0o600}, {cfg.Path(config.SecretName), 0o600},
		{cfg.Path(config.LogKeyName), 0o600}, {cfg.Path(config.DatabaseName), 0o600}, {filepath.Dir(res.SignerKey), 0o700},
	} {
		if info, err := os.Stat(f.path); err != nil || info.Mode().Perm() != f.mode {
			t.Errorf("%s: %v, want mode %o", f.path, err, f.mode)
		}
	}
	r := start(t, cfg)
	r.sound()
	r.until("running", func(p flow.Phase) bool { return p == flow.Running })
	tcp, key := r.tcp(), signer(t, cfg)
	ready, err := tcp.Ready(t.Context(), "", "")
	if err != nil || !ready.Ready || !ready.WriteReady || len(ready.Missing) > 0 {
		t.Fatalf("readyz %+v, %v", ready, err)
	}
	head, err := tcp.Head(t.Context())
	if err != nil || head.Version != 1 || head.PayloadB3.String() != res.Genesis {
		t.Fatalf("head %+v, %v, want genesis %s", head, err, res.Genesis)
	}
	r.mustPut(tcp, key, 2, "over-tcp")
	r.mustPut(r.socket(), key, 3, "over-socket")
	st, err := r.socket().Status(t.Context())
	if err != nil || st.Phase != flow.Running.String() || st.Head == nil || st.Head.Version != 3 || st.NodeID == "" ||
		!st.WriteReady {
		t.Errorf("status %+v, %v", st, err)
	}
	v, err := tcp.NodeVersion(t.Context())
	if err != nil || v.NodeID != st.NodeID || v.Incarnation != st.Incarnation || v.Version != "test" {
		t.Errorf("version %+v, %v", v, err)
	}
	r.halt()
	if want := "recovering running draining stopping stopped"; r.log.phases() != want {
		t.Errorf("the node went through %s, want %s", r.log.phases(), want)
	}
	again := start(t, cfg)
	if head, err := again.tcp().Head(t.Context()); err != nil || head.Version != 3 {
		t.Errorf("after a restart head is %+v, %v", head, err)
	}
	if !again.store.Info().Clean {
		t.Error("a clean stop left the file unclean")
	}
	again.halt()
}

// A node without a genesis is ready: its registry has not begun. Only the readiness of the registry
// alone lacks the genesis.
func TestRegistryNotBegun(t *testing.T) {
	cfg := newConfig(t)
	res, err := Init(t.Context(), cfg, initdir.Options{})
	if err != nil || res.SignerKey != "" || res.Genesis != "" {
		t.Fatalf("%+v, %v", res, err)
	}
	r := start(t, loaded(t, cfg))
	r.sound()
	ready, err := r.tcp().Ready(t.Context(), "", "")
	if err != nil || !ready.Ready || ready.Degraded || len(ready.Missing) > 0 ||
		ready.Services["registry"].State != "not_begun" {
		t.Errorf("readyz %+v, %v", ready, err)
	}
	if own, err := r.tcp().Ready(t.Context(), "registry", ""); err != nil || own.Ready ||
		!slices.Equal(own.Missing, []string{"registry.genesis"}) {
		t.Errorf("readyz of the registry %+v, %v", own, err)
	}
	if got := r.metric("readyz_degraded", "service", "registry", "cause", "genesis"); got != 0 {
		t.Error("the metric warns")
	}
	if f := r.finding(checkup.Ready); f.State != "ok" {
		t.Errorf("%+v", f)
	}
	r.halt()
}

// A second node on the directory names the first, and harms nothing.
func TestSecondNodeIsLockedOut(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	first := start(t, cfg)
	again := loaded(t, cfg)
	again.Store.LockTimeout = 0
	second := launch(t, again)
	if code := second.end(); code != process.ExitLocked {
		t.Errorf("exit %d, want %d", code, process.ExitLocked)
	}
	if want := fmt.Sprintf("held by process %d ", os.Getpid()); !strings.Contains(second.log.String(), want) {
		t.Errorf("the log does not name the first process:\n%s", second.log)
	}
	if _, err := first.socket().Status(t.Context()); err != nil {
		t.Errorf("the first node lost its socket: %v", err)
	}
	first.halt()
}

// What keeps a node from starting names its exit code.
func TestBootFailures(t *testing.T) {
	t.Parallel()
	for i, tt := range []struct {
		doc   string
		spoil func(t *testing.T, cfg *config.Config)
		want  int
	}{
		{"no database", func(t *testing.T, cfg *config.Config) { must(t, os.Remove(cfg.Path(config.DatabaseName))) },
			process.ExitConfig},
		{"a database cut short", func(t *testing.T,
			cfg *config.Config) {
			must(t, os.Truncate(cfg.Path(config.DatabaseName), 5000))
		}, process.ExitCorrupt},
		{"a pipe in the place of the database", func(t *testing.T, cfg *config.Config) {
			must(t, os.Remove(cfg.Path(config.DatabaseName)))
			must(t, syscall.Mkfifo(cfg.Path(config.DatabaseName), 0o600))
		}, process.ExitCorrupt},
		{"a link to a device in the place of the database", func(t *testing.T, cfg *config.Config) {
			must(t, os.Remove(cfg.Path(config.DatabaseName)))
			must(t, os.Symlink("/dev/zero", cfg.Path(config.DatabaseName)))
		}, process.ExitCorrupt},
		{"a directory in the place of the database", func(t *testing.T, cfg *config.Config) {
			must(t, os.Remove(cfg.Path(config.DatabaseName)))
			must(t, os.Mkdir(cfg.Path(config.DatabaseName), 0o700))
		}, process.ExitCorrupt},
		{"a secret that others may read", func(t *testing.T,
			cfg *config.Config) {
			must(t, os.Chmod(cfg.Path(config.SecretName), 0o644))
		}, process.ExitDenied},
		{"a secret that is none", func(t *testing.T, cfg *config.Config) {
			must(t, os.WriteFile(cfg.Path(config.SecretName), []byte("x"), 0o600))
		}, process.ExitConfig},
		{"a secret that is a directory", func(t *testing.T, cfg *config.Config) {
			must(t, os.Remove(cfg.Path(config.SecretName)))
			must(t, os.Mkdir(cfg.Path(config.SecretName), 0o700))
		}, process.ExitConfig},
		{"a secret that links to nothing", func(t *testing.T, cfg *config.Config) {
			must(t, os.Remove(cfg.Path(config.SecretName)))
			must(t, os.Symlink("/nowhere/node.key", cfg.Path(config.SecretName)))
		}, process.ExitConfig},
		{"a file in the place of the socket", func(t *testing.T, cfg *config.Config) {
			must(t, os.WriteFile(cfg.SocketPath(), nil, 0o600))
		}, process.ExitConfig},
		{"an address that no machine has", func(_ *testing.T, cfg *config.Config) { cfg.Server.Bind = "192.0.2.1:9" },
			process.ExitConfig},
		{"the name of another log", func(_ *testing.T,
			cfg *config.Config) {
			cfg.Registry.Origin = "elsewhere.example/log"
		}, process.ExitConfig},
		{"the genesis of another log", func(_ *testing.T, cfg *config.Config) {
			cfg.Registry.Bootstrap.TrustRootsHash = "b3:" + strings.Repeat("0", 64)
		}, process.ExitConfig},
	} {
		if hosttest.UnderRace() && i%3 > 0 { // a boot is the work of one goroutine
			continue
		}
		t.Run(tt.doc, func(t *testing.T) {
			cfg, _ := devConfig(t)
			tt.spoil(t, cfg)
			r := launch(t, cfg)
			if code := r.end(); code != tt.want {
				t.Errorf("exit %d, want %d\n%s", code, tt.want, r.log)
			}
			if log := r.log.String(); !strings.Contains(log, `"event":"start failed"`) ||
				!strings.Contains(log, `"next":"`) {
				t.Errorf("the log does not say what to do next:\n%s", log)
			}
			if p, _ := r.Lifecycle(); p != flow.Stopped {
				t.Errorf("phase %v at the end", p)
			}
		})
	}
}

// A disk that is mounted read-only may be mounted for writing again, so the service manager tries
// again.
func TestReadOnlyFileSystem(t *testing.T) {
	for _, err := range []error{
		&fs.PathError{Op: "open", Path: "/data/ronbox.db", Err: syscall.EROFS},
		&store.PoisonError{Cause: &fs.PathError{Op: "write", Path: "/data/ronbox.db", Err: syscall.EROFS}},
		process.CannotListen(&net.OpError{Op: "listen", Net: "unix", Err: os.NewSyscallError("bind", syscall.EROFS)}),
	} {
		if v := wiring.OutcomeOf(err); v.Code != process.ExitStorage || !strings.Contains(v.Next, "read-only") {
			t.Errorf("%v: exit %d, next: %s", err, v.Code, v.Next)
		}
	}
}

// flip changes one bit behind each occurrence of text in a file.
func flip(t *testing.T, path, text string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	hits := 0
	for at := 0; ; hits++ {
		next := bytes.Index(raw[at:], []byte(text))
		if next < 0 {
			break
		}
		at += next + len(text)
		raw[at-1] ^= 1
	}
	if hits == 0 {
		t.Fatalf("%s does not hold %s", path, text)
	}
	must(t, os.WriteFile(path, raw, 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A port that is taken ends the start, and the file is let go in order.
func TestPortInUse(t *testing.T) {
	first := start(t, first(devConfig(t)))
	cfg, _ := devConfig(t)
	cfg.Server.Bind = first.Addr()
	r := launch(t, cfg)
	if code := r.end(); code != process.ExitLocked {
		t.Errorf("exit %d, want %d", code, process.ExitLocked)
	}
	who := fmt.Sprintf("the ronbox node on %s (process %d)", first.cfg.Node.DataDir, os.Getpid())
	if log := r.log.String(); !strings.Contains(log, who) ||
		!strings.Contains(log, "--data-dir "+first.cfg.Node.DataDir+" drain") {
		t.Errorf("the log does not name %s:\n%s", who, log)
	}
	found := checkup.Of(t.Context(), cfg, time.Time{}, false)
	if !slices.ContainsFunc(
		found,
		func(f host.Finding) bool { return f.Check == checkup.Port && strings.Contains(f.Seen, who) },
	) {
		t.Errorf("doctor does not name %s: %+v", who, found)
	}
	first.halt()
	cfg.Server.Bind = "127.0.0.1:0"
	again := start(t, cfg)
	if !again.store.Info().Clean {
		t.Error("the failed start left the file unclean")
	}
	again.halt()
}

func first[A, B any](a A, _ B) A { return a }

// Without node.key the node makes a new one: old tokens are void, the socket still opens the door.
func TestLostSecret(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, os.Remove(cfg.Path(config.SecretName)))
	r := start(t, cfg)
	_, err := r.tcp().Propose(t.Context(), draft(2, "x"), "")
	if p := problem(t, err); p.Status != 401 {
		t.Errorf("an old token: %+v", p)
	}
	token, err := r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}, TTL: "5m"})
	if err != nil {
		t.Fatal(err)
	}
	c := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token})
	if _, err := c.Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("a new token: %v", err)
	}
	if _, err := r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"x.y"}, TTL: "soon"}); problem(
		t,
		err,
	).Status != 400 {
		t.Errorf("a ttl that is none: %v", err)
	}
	r.halt()
	for _, want := range []string{"auth.kid_added", "auth.secret_made", "auth.token_minted", "node.drain"} {
		if rows := auditRows(t, cfg); !slices.Contains(rows, want) {
			t.Errorf("no audit row %s in %v", want, rows)
		}
	}
}

// A node.key of another node does not start: every token would be refused, and listed as good.
// Without it the node makes a new one, and the one that was lost may come back.
func TestWrongSecret(t *testing.T) {
	cfg, _ := devConfig(t)
	path := cfg.Path(config.SecretName)
	right, err := os.ReadFile(path)
	must(t, err)
	finding := func() host.Finding {
		found := checkup.Of(t.Context(), cfg, time.Time{}, false)
		return found[slices.IndexFunc(found, func(f host.Finding) bool { return f.Check == "node_key" })]
	}
	if f := finding(); f.Level != host.OK {
		t.Errorf("doctor, of the right one: %+v", f)
	}
	must(t, os.WriteFile(path, []byte(strings.Repeat("ab", 32)+"\n"), 0o600))
	if f := finding(); f.Level != host.Bad || !strings.Contains(f.Advice, "from its backup") {
		t.Errorf("doctor, of a wrong one: %+v", f)
	}
	if _, err := MintOffline(t.Context(), cfg, Build{},
		nodeapi.MintRequest{Sub: "x", Scopes: []string{"a.b"}}); !errors.Is(
		err,
		tokens.ErrSecret,
	) {
		t.Errorf("mint with a wrong one: %v", err)
	}
	n, err := assemble(cfg, Build{}, Options{}, io.Discard)
	must(t, err)
	if exit := n.Run(t.Context()); exit != process.ExitConfig {
		t.Errorf("exit %d with a wrong one, want %d", exit, process.ExitConfig)
	}
	must(t, os.Remove(path))
	if f := finding(); f.Level != host.Warn {
		t.Errorf("doctor, without one: %+v", f)
	}
	start(t, cfg).halt()
	fresh, err := os.ReadFile(path)
	must(t, err)
	for _, back := range [][]byte{right, fresh, right} {
		must(t, os.WriteFile(path, back, 0o600))
		start(t, cfg).halt()
	}
}

// An unreadable certificate is reported as such, not as a fault of the address.
func TestMissingCertificate(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.TLS.Enabled, cfg.TLS.CertPath, cfg.TLS.KeyPath = true, "/nowhere/cert.pem", "/nowhere/key.pem"
	n, err := assemble(cfg, Build{}, Options{}, io.Discard)
	must(t, err)
	err = n.openParts(t.Context())
	if got := wiring.OutcomeOf(err); got.Code != process.ExitConfig || !strings.Contains(got.Next, "tls.cert_path") {
		t.Errorf("%v: %+v", err, got)
	}
	must(t, n.store.Close())
}
