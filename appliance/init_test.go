package appliance

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"ronbox/appliance/config"
)

// Of several inits on one directory one wins, and the others take nothing of what it made.
func TestInitsAtOnce(t *testing.T) {
	for range 8 {
		cfg := newConfig(t)
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				switch _, err := Init(t.Context(), cfg, InitOptions{}); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, ErrNotEmpty):
					t.Errorf("a second init: %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d inits succeeded", won.Load())
		}
		for _, name := range []string{SecretName, DatabaseName, TokenName} {
			if _, err := os.Stat(cfg.Path(name)); err != nil {
				t.Errorf("after init: %v", err)
			}
		}
	}
}

// An init that fails leaves the directory as it was, and none where there was none.
func TestFailedInitLeavesNothing(t *testing.T) {
	for _, there := range []bool{true, false} {
		cfg := newConfig(t)
		cfg.Registry.Bootstrap.TrustRootsHash = "b3:" + strings.Repeat("0", 64) // no genesis has this hash
		if there {
			must(t, os.Mkdir(cfg.Node.DataDir, 0o755))
		}
		if _, err := Init(t.Context(), cfg, InitOptions{Dev: true}); err == nil {
			t.Fatal("a genesis against the pinned one was committed")
		}
		info, err := os.Stat(cfg.Node.DataDir)
		if !there {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left a directory: %v", err)
			}
			continue
		}
		if entries, err := os.ReadDir(cfg.Node.DataDir); err != nil || len(entries) > 0 {
			t.Errorf("left %v, %v", entries, err)
		}
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("mode is %v, %v", info.Mode(), err)
		}
	}
}

// An init that was killed leaves a mark: nobody serves what it made, and the next one begins anew, unless something else lies there or
// the first one lives.
func TestKilledInit(t *testing.T) {
	for doc, lost := range map[string][]string{
		"at once":             {SecretName, config.FileName, DatabaseName, TokenName, "registry"},
		"before the database": {DatabaseName, TokenName, "registry"},
		"before the token":    {TokenName, "registry"},
		"before the money":    {},
	} {
		cfg, _ := devConfig(t)
		mark := cfg.Path(UnfinishedName)
		must(t, os.WriteFile(mark, nil, 0o600))
		for _, name := range lost {
			must(t, os.RemoveAll(cfg.Path(name)))
		}
		r := launch(t, cfg)
		if code := r.end(); code != ExitConfig || !strings.Contains(r.log.String(), "ronbox init") {
			t.Errorf("%s: exit %d\n%s", doc, code, r.log)
		}
		alien := cfg.Path("alien")
		must(t, os.WriteFile(alien, nil, 0o600))
		before := files(t, cfg.Node.DataDir)
		if _, err := Init(t.Context(), cfg, InitOptions{Dev: true}); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("%s, beside another's file: %v", doc, err)
		}
		must(t, os.Remove(alien))
		live, err := os.Open(mark)
		must(t, err)
		must(t, unix.Flock(int(live.Fd()), unix.LOCK_EX))
		if _, err := Init(t.Context(), cfg, InitOptions{Dev: true}); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("%s, while the first one lives: %v", doc, err)
		}
		must(t, live.Close())
		if after := files(t, cfg.Node.DataDir); len(after) != len(before)-1 {
			t.Errorf("%s: a refused init left %v of %v", doc, after, before)
		}
		res, err := Init(t.Context(), cfg, InitOptions{Dev: true})
		if err != nil || res.Account != devAccount {
			t.Fatalf("%s: %+v, %v", doc, res, err)
		}
		again := start(t, loaded(t, cfg))
		again.has(devAccount, "1000000", 0)
		again.halt()
	}
}

func TestInitRefusesWhatIsThere(t *testing.T) {
	cfg, _ := devConfig(t)
	if _, err := Init(t.Context(), cfg, InitOptions{}); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("second init: %v", err)
	}
	if _, err := os.Stat(cfg.Path(DatabaseName)); err != nil {
		t.Errorf("a refused init touched the node: %v", err)
	}
	file := newConfig(t)
	must(t, os.WriteFile(file.Node.DataDir, nil, 0o600))
	if _, err := Init(t.Context(), file, InitOptions{}); ExitCode(err) != ExitConfig {
		t.Errorf("init on a file: %v, exit %d", err, ExitCode(err))
	}
}
