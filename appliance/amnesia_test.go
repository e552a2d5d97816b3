package appliance

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host"
	"ronbox/engines"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// A node in memory needs no init, leaves no file but its socket, refuses what would be written to a disk and shows it, and
// is another node each time.
func TestAmnesia(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled, cfg.Amnesia.AllowSwap, cfg.Amnesia.PurgeIntervalMS = true, true, 100
	var ids []string
	for range 2 {
		r := launch(t, cfg)
		r.serving()
		if slices.Contains(r.board.Report("", "").Missing, "node.amnesia_ok") {
			t.Error("it begins degraded")
		}
		c := r.socket()
		st, err := c.Status(t.Context())
		must(t, err)
		ids = append(ids, st.NodeID)
		token, err := c.Mint(t.Context(), wire.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}, Caveats: []string{"amnesia = on"}})
		must(t, err)
		if _, err := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token}).Proposals(t.Context(), "", 10); err != nil {
			t.Errorf("its token: %v", err)
		}
		_, err = c.Snapshot(t.Context(), wire.SnapshotRequest{Dir: filepath.Join(cfg.Node.DataDir, "snap")}, nil)
		if p := problem(t, err); p.Status < 400 || p.Reason != "amnesia" {
			t.Errorf("a snapshot: %+v", p)
		}
		if _, err := c.CheckDB(t.Context(), func(wire.CheckLine) {}); problem(t, err).Reason != "amnesia" {
			t.Errorf("a check: %v", err)
		}
		r.await("purges", func() bool { return r.metric("amnesia_purge_total") >= 2 })
		if r.metric("amnesia_mode", "status", "on") != 1 || r.metric("amnesia_mode", "status", "off") != 0 {
			t.Error("the metrics do not tell the mode")
		}
		r.await("the refusal to be forgotten", func() bool {
			return !slices.Contains(r.board.Report("", "").Missing, "node.amnesia_ok")
		})
		if left := files(t, cfg.Node.DataDir); !slices.Equal(left, []string{"admin.sock"}) {
			t.Errorf("files: %v", left)
		}
		r.halt()
	}
	if ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("node ids %v", ids)
	}
}

// files lists what is in dir and below.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	}))
	return out
}

// What someone wanted written to a disk shows until the next purge.
func TestAmnesiaShowsRefusals(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled = true
	n := wired(t, cfg, Options{}, &logs{})
	defer n.closeEngines()
	must(t, n.purgeCaches(t.Context()))
	if _, err := n.Snapshot(t.Context(), engines.Actor{}, "", wire.SnapshotRequest{Dir: "/x"}, nil); err == nil {
		t.Error("a snapshot was taken")
	}
	if r := n.board.Report("node", ""); !slices.Contains(r.Missing, "node.amnesia_ok") {
		t.Errorf("%+v", r)
	}
	must(t, n.purgeCaches(t.Context()))
	if r := n.board.Report("node", ""); slices.Contains(r.Missing, "node.amnesia_ok") {
		t.Errorf("after a purge: %+v", r)
	}
}

// Each condition alone lets a node in memory start; without any it names what can be done.
func TestAmnesiaStartConditions(t *testing.T) {
	no := errors.New("not allowed")
	disk, zram := []host.SwapArea{{Name: "/dev/sda2"}}, []host.SwapArea{{Name: "/dev/zram0"}}
	for _, tt := range []struct {
		doc     string
		allowed bool
		areas   []host.SwapArea
		err     error
		group   int64
		lock    error
		want    bool
	}{
		{"no swap", false, nil, nil, 0, no, true},
		{"compressed memory only", false, zram, nil, 0, no, true},
		{"none for the control group", false, disk, nil, noSwap, no, true},
		{"memory is locked", false, disk, nil, 0, nil, true},
		{"whoever runs it does not mind", true, disk, nil, 0, no, true},
		{"swap", false, disk, nil, 0, no, false},
		{"nobody can tell", false, nil, no, 0, no, false},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			err := unswappable(tt.allowed,
				func() ([]host.SwapArea, error) { return tt.areas, tt.err },
				func() (host.Limits, error) { return host.Limits{Group: host.Group{Swap: tt.group}}, nil },
				func() error { return tt.lock })
			if (err == nil) != tt.want {
				t.Errorf("%v", err)
			}
			if err != nil && (ExitCode(err) != ExitConfig || !strings.Contains(judge(err).next, "swapoff")) {
				t.Errorf("%v: exit %d, next %q", err, ExitCode(err), judge(err).next)
			}
		})
	}
}

// A node with a disk is not in memory: its secret is a file and nothing is purged.
func TestNoAmnesia(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if r.purgeEvery() != 0 || r.metric("amnesia_mode", "status", "off") != 1 {
		t.Error("a node with a disk forgets")
	}
	if _, err := os.Stat(cfg.Path(SecretName)); err != nil {
		t.Error(err)
	}
	if resp := r.raw(http.MethodGet, "/readyz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("readyz %d", resp.StatusCode)
	}
	r.halt()
}

// There is nothing to make for a node in memory, and nothing to mint with beside it.
func TestAmnesiaNeedsNoInit(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled = true
	if _, err := Init(t.Context(), cfg, InitOptions{}); ExitCode(err) != ExitConfig {
		t.Errorf("init: %v", err)
	}
	if _, err := MintOffline(t.Context(), cfg, Build{}, wire.MintRequest{Sub: "x", Scopes: []string{"a.b"}}); ExitCode(err) != ExitConfig {
		t.Errorf("mint: %v", err)
	}
	if _, err := os.Stat(cfg.Node.DataDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left a directory: %v", err)
	}
}
