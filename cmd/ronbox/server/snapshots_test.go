package server

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// The list has the node's snapshots of the folder, newest first, and whether each was verified.
func TestSnapshotsAreListed(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, dir := r.socket(), cfg.Path(config.SnapshotsName)
	list := func() nodeapi.SnapshotList {
		t.Helper()
		l, err := c.Snapshots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := list(); l.Dir != dir || len(l.Snapshots) != 0 {
		t.Errorf("before the first: %+v", l)
	}
	taken, err := c.Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ronbox-29990101T000000.000Z-1.db.bad", "ronbox-29990101T000000.000Z-2.db", "other.db"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	manifest, err := os.ReadFile(taken.File + ".manifest.json")
	must(t, err)
	node := r.Version().NodeID
	foreign := strings.Replace(string(manifest), node, strings.Repeat("0", len(node)), 1)
	for name, data := range map[string]string{"": "x", ".manifest.json": foreign} {
		must(t, os.WriteFile(filepath.Join(dir, "ronbox-20010101T000000.000Z-1.db"+name), []byte(data), 0o600))
	}
	l := list()
	if len(l.Snapshots) != 3 {
		t.Fatalf("%+v", l)
	}
	bad, bare, good := l.Snapshots[1], l.Snapshots[0], l.Snapshots[2]
	if bad.Verified || bare.Verified || bad.Bytes != 1 {
		t.Errorf("not verified: %+v, %+v", bad, bare)
	}
	if !good.Verified || filepath.Join(dir, good.Name) != taken.File || good.B3 != taken.B3 || good.Seq != taken.Seq ||
		good.Bytes < store.PageSize {
		t.Errorf("%+v, taken %+v", good, taken)
	}
	r.halt()
}

// Without room for a scheduled snapshot the oldest ones are removed, but only if that would make
// enough room, and never the last two.
func TestOldSnapshotsMakeRoom(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	dir := cfg.Path(config.SnapshotsName)
	taken, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: dir}, nil)
	must(t, err)
	manifest, err := os.ReadFile(taken.File + ".manifest.json")
	must(t, err)
	var old []string
	for _, day := range []string{"01", "02", "03"} {
		path := filepath.Join(dir, "ronbox-200101"+day+"T000000.000Z-1.db")
		must(t, os.WriteFile(path, []byte("x"), 0o600))
		must(t, os.WriteFile(path+".manifest.json", manifest, 0o600))
		old = append(old, path)
	}
	const tb = 1 << 40 // of files without content
	bad := filepath.Join(dir, "ronbox-20010104T000000.000Z-1.db.bad")
	must(t, os.WriteFile(bad, []byte("x"), 0o600))
	var disk unix.Statfs_t
	must(t, unix.Statfs(dir, &disk))
	must(t, os.Truncate(r.store.Path(), int64(disk.Bavail)*int64(disk.Bsize)+tb/2))

	tries := func(doc string, want ...string) {
		t.Helper()
		if err := r.backup.Job(time.Now()).Do(t.Context()); !errors.Is(err, store.ErrFull) {
			t.Errorf("%s: %v", doc, err)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*.db"))
		must(t, err)
		if want = append(want, taken.File); !slices.Equal(left, want) {
			t.Errorf("%s: left are %q, want %q", doc, left, want)
		}
	}
	tries("nothing to gain", old...)
	must(t, os.Truncate(bad, tb))
	must(t, os.Truncate(old[2], tb))
	tries("what stays is large", old...)
	must(t, os.Truncate(old[0], tb))
	tries("what goes is large", old[2])
	r.halt()
}

// A node in memory has no snapshots, and says so.
func TestSnapshotsInMemory(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled = true
	n := wired(t, cfg, Options{}, &logs{})
	if _, err := n.Snapshots(t.Context()); !errors.Is(err, store.ErrAmnesia) {
		t.Errorf("%v", err)
	}
	n.services.Close(t.Context())
}

// Without a console there are no sessions to list or to end.
func TestSessionsOfNoConsole(t *testing.T) {
	cfg := newConfig(t)
	cfg.Console.Enabled = false
	n := wired(t, cfg, Options{}, &logs{})
	if _, err := n.Sessions(); !errors.As(err, new(*nodehttp.ConflictError)) {
		t.Errorf("list: %v", err)
	}
	if err := n.EndSession(t.Context(), tokens.Self("test"), "", "a"); !errors.As(err, new(*nodehttp.ConflictError)) {
		t.Errorf("end: %v", err)
	}
	n.services.Close(t.Context())
}

// A session of the console is listed, and ends over the API. Its id does not open it.
func TestSessionsOverTheAPI(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b, c := newBrowser(t, r), r.socket()
	b.enter(r, false)
	list, err := c.Sessions(t.Context())
	if err != nil || len(list.Sessions) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	one := list.Sessions[0]
	if one.Kind != "code" || one.Write || one.From == "" || !one.ExpiresAt.After(one.BeganAt.Time) {
		t.Errorf("%+v", one)
	}
	site, err := url.Parse(b.base + "/console/")
	must(t, err)
	for _, cookie := range b.http.Jar.Cookies(site) {
		if strings.Contains(cookie.Value, one.ID) {
			t.Errorf("the cookie %s contains the id %s", cookie.Value, one.ID)
		}
	}
	b.wants(http.StatusOK, "GET", "/console/wallet", "")
	if err := c.EndSession(t.Context(), one.ID); err != nil {
		t.Fatal(err)
	}
	if answer, _ := b.do("GET", "/console/wallet", ""); answer.StatusCode == http.StatusOK {
		t.Error("the session goes on")
	}
	if p := problem(t, c.EndSession(t.Context(), one.ID)); p.Status != http.StatusNotFound {
		t.Errorf("ended twice: %+v", p)
	}
	page, err := c.Audit(t.Context(), 1, 1000)
	must(t, err)
	if !slices.ContainsFunc(page.Rows, func(row nodeapi.AuditRow) bool {
		return row.Event == "console.ended" && row.Detail["session"] == one.ID
	}) {
		t.Error("no audit row of the end")
	}
	r.halt()
}
