package initdir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	nodehttp "ronbox/httpapi/node"
)

// noNode are hooks of an init that creates nothing in the file.
var noNode = Hooks{Found: func(context.Context, *config.Config, Options) (Founded, error) { return Founded{}, nil }}

// A service cannot see a binary in a temporary folder, such as the test binary: init refuses and
// leaves no file.
func TestInitRefusesHiddenPlaces(t *testing.T) {
	cfg := newConfig(t)
	_, err := Make(t.Context(), cfg, Options{Systemd: true}, noNode)
	if !errors.Is(err, systemd.ErrPlace) {
		t.Errorf("%v, want ErrPlace", err)
	}
	if exists(cfg.Node.DataDir) {
		t.Error("it leaves a directory")
	}
}

// The files of a service are written for the configuration and the directory, and a new init
// removes them with the rest.
func TestInitWritesUnits(t *testing.T) {
	cfg := newConfig(t)
	cfg.Server.Bind, cfg.Server.Plaintext = "0.0.0.0:80", true
	service, err := installOf(cfg)
	must(t, err)
	service.User = systemd.SystemUser
	made, err := claim(cfg.Node.DataDir)
	must(t, err)
	res, err := initIn(t.Context(), *cfg, Options{Systemd: true}, noNode, &service)
	must(t, err)
	must(t, made.done())
	text, err := os.ReadFile(res.Unit)
	if err != nil || !strings.Contains(string(text), service.Binary) ||
		!strings.Contains(string(text), cfg.Node.DataDir) {
		t.Errorf("%s, %v", text, err)
	}
	for _, f := range service.Files() {
		if !exists(cfg.Path(f.Name)) || !slices.Contains(initMakes(), f.Name) {
			t.Errorf("%s is not written, or not removed", f.Name)
		}
	}
	if again := loadedFile(t, cfg); again.Server.Bind != cfg.Server.Bind || !again.Server.Plaintext {
		t.Errorf("the service binds %s, plaintext %v, want %s", again.Server.Bind, again.Server.Plaintext,
			cfg.Server.Bind)
	}
	if !slices.Equal(res.Install, service.Steps()) {
		t.Errorf("steps %q", res.Install)
	}
}

// loadedFile loads the configuration of the directory without environment variables.
func loadedFile(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	out, err := config.Load(config.LoadOptions{DataDir: cfg.Node.DataDir})
	must(t, err)
	return out
}

// Each new node has a daily snapshot in its configuration, unless that is declined, and its assets.
func TestInitSchedulesSnapshots(t *testing.T) {
	for _, none := range []bool{false, true} {
		cfg := newConfig(t)
		cfg.Wallet.Assets = []string{"ron", "gold"}
		_, err := Make(t.Context(), cfg, Options{NoBackup: none}, noNode)
		must(t, err)
		got := loadedFile(t, cfg)
		if every := got.Store.SnapshotEvery.D(); (every == 24*time.Hour) == none || (every == 0) != none {
			t.Errorf("no backup %v: every %v", none, every)
		}
		if got.Store.SnapshotDir != "" || !slices.Equal(got.Wallet.Assets, cfg.Wallet.Assets) {
			t.Errorf("%q, %q", got.Store.SnapshotDir, got.Wallet.Assets)
		}
	}
}

// Only a node in the directory of the packages uses their folder for snapshots, and only if it can.
func TestPackagedFolder(t *testing.T) {
	cfg := newConfig(t)
	if packaged(cfg) || !packaged(config.Default()) {
		t.Error("the directory of the packages is another")
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for path, want := range map[string]bool{
		dir:                        true,
		filepath.Join(dir, "none"): false,
		filepath.Join(dir, "file"): false,
	} {
		if got := mayWrite(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// An init with a folder for snapshots that cannot be one makes nothing.
func TestInitNamesTheSnapshotFolder(t *testing.T) {
	cfg := newConfig(t)
	cfg.Store.SnapshotDir = "/proc/version/x"
	_, err := Make(t.Context(), cfg, Options{}, noNode)
	if dir, ok := errors.AsType[*nodehttp.SnapshotDirError](err); !ok || dir.Path != cfg.Store.SnapshotDir ||
		exists(cfg.Node.DataDir) {
		t.Errorf("%v", err)
	}
}

// A directory may have a folder for lost files, the test file of a doctor, and the lock of a verb of
// the cluster. An init keeps them, even if it fails.
func TestInitOnFreshDisk(t *testing.T) {
	cfg := newConfig(t)
	kept := []string{"lost+found", "cluster", ".ronbox-sync-1"}
	must(t, os.MkdirAll(cfg.Path(kept[0]), 0o700))
	must(t, os.Mkdir(cfg.Path(kept[1]), 0o700))
	must(t, os.WriteFile(cfg.Path(kept[2]), nil, 0o600))
	failed := errors.New("by the test")
	fails := Hooks{Found: func(context.Context, *config.Config, Options) (Founded, error) { return Founded{}, failed }}
	if _, err := Make(t.Context(), cfg, Options{}, fails); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if _, err := Make(t.Context(), cfg, Options{}, noNode); err != nil {
		t.Fatal(err)
	}
	for _, name := range kept {
		if !exists(cfg.Path(name)) {
			t.Errorf("%s is gone", name)
		}
	}
	member := newConfig(t)
	must(t, os.MkdirAll(member.Path("cluster", "node.key"), 0o700))
	if _, err := Make(t.Context(), member, Options{}, noNode); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("with an identity: err = %v, want ErrNotEmpty", err)
	}
}

// An init, also one that goes on after a kill, refuses a directory in which a join has begun.
func TestInitBesideJoin(t *testing.T) {
	cfg := newConfig(t)
	joins := cfg.Path("cluster", "join.json")
	must(t, os.MkdirAll(filepath.Dir(joins), 0o700))
	must(t, os.WriteFile(cfg.Path(config.UnfinishedName), nil, 0o600))
	must(t, os.WriteFile(joins, nil, 0o600))
	if _, err := Make(t.Context(), cfg, Options{}, noNode); !errors.Is(err, ErrNotEmpty) || !exists(joins) {
		t.Errorf("err = %v, want ErrNotEmpty; the join's mark stays: %t", err, exists(joins))
	}
	c := claimed{dir: cfg.Node.DataDir}
	must(t, os.Remove(cfg.Path(config.UnfinishedName)))
	if err := c.clear(); !errors.Is(err, ErrNotEmpty) || exists(cfg.Path(config.UnfinishedName)) {
		t.Errorf("err = %v, want ErrNotEmpty and no mark", err)
	}
}

func newConfig(t *testing.T) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Node.DataDir = filepath.Join(t.TempDir(), "data")
	cfg.Server.Bind = "127.0.0.1:0"
	cfg.Store.MaxBytes = 256 << 20
	return cfg
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
