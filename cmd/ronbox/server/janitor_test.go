package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// hours is a node without sockets and the jobs of its janitor. A test advances its clock.
type hours struct {
	*Node
	t    *testing.T
	jobs []*upkeep.Job
	gone atomic.Int64 // nanoseconds since it began
}

// throughHours runs a dev node with a clock that only work advances.
func throughHours(t *testing.T, cfg *config.Config, work func(h *hours)) {
	t.Helper()
	h, begun := &hours{t: t}, time.Now()
	read := func() (time.Time, time.Duration) {
		gone := time.Duration(h.gone.Load())
		return begun.Add(gone), gone
	}
	n, err := assemble(cfg, Build{}, Options{clock: clock.Options{Read: read}}, &logs{})
	must(t, err)
	must(t, n.offline(t.Context(), func(context.Context) error {
		h.Node, h.jobs = n, n.jobs(n.now())
		work(h)
		return nil
	}))
}

// pass runs the janitor every minute until the given duration has passed.
func (h *hours) pass(d time.Duration) {
	h.t.Helper()
	for ; d > 0; d -= time.Minute {
		h.gone.Add(int64(min(d, time.Minute)))
		h.janitor.Turn(h.t.Context(), h.jobs)
	}
}

// tenMinutes is the time from the start until the first scheduled snapshot.
const tenMinutes = 10 * time.Minute

func snapshots(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".db" {
			names = append(names, e.Name())
		}
	}
	return names
}

// Snapshots follow the schedule. The first is taken ten minutes after the start if no snapshot
// exists. A restarted node keeps the schedule. Old snapshots are removed.
func TestScheduledSnapshots(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Store.SnapshotEvery = unit.Duration(20 * time.Minute)
	dir := cfg.Path(config.SnapshotsName)
	throughHours(t, cfg, func(h *hours) {
		h.pass(tenMinutes - time.Minute)
		if exists(dir) {
			t.Error("the first one was taken early")
		}
		h.pass(time.Minute)
		if got := snapshots(t, dir); len(got) != 1 {
			t.Errorf("after ten minutes %v", got)
		}
		h.pass(3 * time.Hour)
		if got := snapshots(t, dir); len(got) < 4 || len(got) > 5 { // one per hour, and the newest
			t.Errorf("after three hours %v", got)
		}
	})
	made := snapshots(t, dir)
	report, err := store.Verify(t.Context(), filepath.Join(dir, made[len(made)-1]), nil, nil, nil)
	if err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
	if rows := auditRows(t, cfg); !slices.Contains(rows, "db.snapshot") {
		t.Errorf("no audit row of a snapshot in %v", rows)
	}
}

// Without room for the next snapshot the oldest are removed, but two stay. The doctor warns if that
// is not enough.
func TestSnapshotsMakeRoom(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Store.SnapshotEvery = unit.Duration(time.Hour)
	dir := cfg.SnapshotDir()
	throughHours(t, cfg, func(h *hours) {
		for range 100 { // the file is then so large that a few pages more or less do not count
			detail := map[string]string{"note": strings.Repeat("x", 4<<10)}
			must(t, h.record(t.Context(), store.Event{Event: "test.row", Detail: detail}))
		}
		m, err := h.store.Snapshot(t.Context(), t.TempDir(), store.SnapshotOptions{}, nil)
		must(t, errors.Join(err, os.Mkdir(dir, 0o700)))
		tmpfs(t, dir, 4*m.Size)
		h.pass(tenMinutes)
		for range 5 {
			newest := slices.Max(snapshots(t, dir))
			h.pass(time.Hour)
			if got := snapshots(t, dir); len(got) > 3 || slices.Max(got) == newest {
				t.Errorf("after an hour %v", got)
			}
		}
		if f := h.backup.Finding(); f.Level != host.OK {
			t.Errorf("%+v", f)
		}
		must(t, os.Remove(filepath.Join(dir, slices.Min(snapshots(t, dir)))))
		var disk unix.Statfs_t
		must(t, unix.Statfs(dir, &disk))
		rest := int64(disk.Bavail)*int64(disk.Bsize) - m.Size/2
		must(t, os.WriteFile(filepath.Join(dir, "other"), make([]byte, rest), 0o600))
		h.pass(time.Hour)
		if got := snapshots(t, dir); len(got) != 2 {
			t.Errorf("without room %v", got)
		}
		if f := h.backup.Finding(); f.Level != host.Warn || !strings.Contains(f.Advice, "another disk") {
			t.Errorf("without room: %+v", f)
		}
	})
}

// tmpfs mounts a small disk on dir. Only root can, and CI is root.
func tmpfs(t *testing.T, dir string, size int64) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("root cannot mount a tmpfs, which this test needs: %v", err)
		}
		t.Skipf("only root can mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// A failed snapshot into an unwritable folder is reported, and the schedule continues.
func TestScheduledSnapshotFails(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Store.SnapshotEvery, cfg.Store.SnapshotDir = unit.Duration(time.Hour), "in-the-way"
	must(t, os.WriteFile(cfg.Path("in-the-way"), nil, 0o600))
	throughHours(t, cfg, func(h *hours) {
		for range 2 { // it is seen before it is due
			if f := h.backup.Finding(); f.Level != host.Warn || !strings.Contains(f.Seen, "in-the-way: not a directory (user ") {
				t.Errorf("%+v", f)
			}
			h.pass(tenMinutes)
		}
		must(t, os.Remove(cfg.Path("in-the-way")))
		h.pass(time.Hour)
		if got := snapshots(t, cfg.Path("in-the-way")); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// The janitor replaces a key at its maximum age. The old key verifies until its tokens have expired
// and is then retired. Expired rows are removed.
func TestJanitorRotatesAndSweeps(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Auth.Rotate = unit.Duration(2 * time.Hour)
	throughHours(t, cfg, func(h *hours) {
		n := h.Node
		// init's token outlives the test
		if _, err := n.RotateKey(t.Context(), engines.Actor{Admin: true}, ""); err != nil {
			t.Fatal(err)
		}
		first := keysOf(t, n).Active
		if _, err := n.Mint(t.Context(), engines.Actor{Admin: true}, "",
			nodeapi.MintRequest{Sub: "x", Scopes: []string{"node.metrics"}, TTL: "3h"}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Revoke(t.Context(), engines.Actor{Admin: true}, "",
			nodeapi.RevokeRequest{TID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}); err != nil {
			t.Fatal(err)
		}
		h.pass(2*time.Hour + 2*time.Minute)
		if k := stateOf(t, n, first); k != "verify" {
			t.Errorf("after two hours the key is %s", k)
		}
		h.pass(time.Hour + 10*time.Minute)
		if k := stateOf(t, n, first); k != "retired" {
			t.Errorf("after its last token the key is %s", k)
		}
		list, err := n.Tokens(t.Context(), engines.Actor{}, "", 100)
		if err != nil || slices.ContainsFunc(list.Tokens, func(i nodeapi.TokenInfo) bool { return i.Sub == "x" }) {
			t.Errorf("%+v, %v", list, err)
		}
	})
	for _, want := range []string{"auth.kid_rotated", "auth.kid_retired"} {
		if rows := auditRows(t, cfg); !slices.Contains(rows, want) {
			t.Errorf("no audit row %s in %v", want, rows)
		}
	}
}

func keysOf(t *testing.T, n *Node) nodeapi.KeyList {
	t.Helper()
	list, err := n.Keys(t.Context())
	must(t, err)
	return list
}

func stateOf(t *testing.T, n *Node, kid string) string {
	t.Helper()
	for _, k := range keysOf(t, n).Keys {
		if k.Kid == kid {
			return k.State
		}
	}
	return ""
}

// crawl is a command that runs until it is released.
type crawl struct{ out chan struct{} }

func (crawl) Kind() string { return "node.crawl/1" }

func (c crawl) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	<-c.out
	return struct{}{}, nil
}

// An idle node does not record. A node records while a long commit runs.
func TestLongCommitIsRecorded(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if recording, slow := r.flight.Recording(), r.hadLongCommit(); recording && !slow {
		t.Error("a node at rest records")
	}
	c, done := crawl{make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := store.Commit(context.WithoutCancel(t.Context()), r.store, store.Control, store.Command[struct{}](c))
		done <- err
	}()
	r.await("the recorder", r.flight.Recording)
	close(c.out)
	must(t, <-done)
	r.halt()
	if r.flight.Recording() {
		t.Error("a node that has stopped records")
	}
}

// slowEnough is the age of a commit at which the recorder starts.
const slowEnough = 250 * time.Millisecond

// hadLongCommit reports whether a commit took long enough to start the recorder, because the disk
// is busy.
func (r *rig) hadLongCommit() bool {
	r.t.Helper()
	for _, phase := range r.gathered()["store_commit_seconds"].GetMetric() {
		h := phase.GetHistogram()
		if labelsOf(phase)["phase"] != "commit" {
			continue
		}
		for _, b := range h.GetBucket() {
			if b.GetUpperBound() < slowEnough.Seconds()/1.5 && 2*b.GetUpperBound() >= slowEnough.Seconds()/1.5 {
				return b.GetCumulativeCount() < h.GetSampleCount()
			}
		}
	}
	return true
}

// A request makes an idle node record for a while, at most as long as the caller waits. The node is
// in memory, so that a slow disk cannot start the recorder.
func TestFlightOfANodeAtRest(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled, cfg.Amnesia.AllowSwap = true, true
	must(t, config.Validate(cfg))
	r := launch(t, cfg)
	r.serving()
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- r.Profile(ctx, "flight", time.Hour, io.Discard) }()
	r.await("the recorder", r.flight.Recording)
	var out bytes.Buffer
	if err := r.Profile(t.Context(), "flight", time.Millisecond, &out); err != nil || out.Len() == 0 {
		t.Errorf("beside another who waits: %d bytes, %v", out.Len(), err)
	}
	if !r.flight.Recording() {
		t.Error("the one who was done has stopped it for the other")
	}
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) || r.flight.Recording() {
		t.Errorf("one who has left: %v, it records is %v", err, r.flight.Recording())
	}
	other := obs.NewFlight()
	must(t, other.Start())
	defer other.Stop()
	if err := r.socket().
		Profile(t.Context(), "flight", time.Second, io.Discard); problem(
		t,
		err,
	).Status != http.StatusConflict {
		t.Errorf("another node of the process records: %v", err)
	}
	r.halt()
}

func TestProfiles(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	for _, name := range []string{"heap", "allocs", "goroutine", "threadcreate", "block", "mutex", "profile", "trace",
		"flight"} {
		var out bytes.Buffer
		if err := r.Profile(t.Context(), name, 50*time.Millisecond, &out); err != nil || out.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", name, out.Len(), err)
		}
	}
	var out bytes.Buffer
	if err := r.socket().Profile(t.Context(), "mutex", time.Second, &out); err != nil || out.Len() == 0 {
		t.Errorf("over the socket: %d bytes, %v", out.Len(), err)
	}
	r.halt()
}

// profiles reports whether a profile is being taken.
func (r *rig) profiles() bool {
	r.t.Helper()
	err := r.socket().Profile(r.t.Context(), "mutex", time.Millisecond, io.Discard)
	return err != nil && problem(r.t, err).Status == http.StatusConflict
}

// A profile ends when its caller disconnects. A second profile is refused while one runs.
func TestProfileEndsWithItsCaller(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled, cfg.Amnesia.AllowSwap = true, true // its flight recorder, which traces too, never runs
	must(t, config.Validate(cfg))
	r := launch(t, cfg)
	r.serving()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.socket().Profile(ctx, "trace", 5*time.Minute, io.Discard) }()
	r.await("the profile", trace.IsEnabled)
	if !r.profiles() {
		t.Error("a second one is taken")
	}
	leave()
	if err := <-ended; err == nil {
		t.Error("who left was given a profile")
	}
	r.await("its end", func() bool { return !r.profiles() })
	r.halt()
}

// A commit that the committer reports as slow reaches the flight recorder.
func TestSlowCommitsAreTold(t *testing.T) {
	n := wired(t, newConfig(t), Options{}, io.Discard)
	defer n.services.Close(t.Context())
	n.storeOptions(n.log).Slow("commit", 3*time.Second)
	for _, c := range n.catalog.Channels() {
		if c.Name == "slow_commits" && c.Len != 1 {
			t.Errorf("%d slow commits wait for the recorder", c.Len)
		}
	}
}

// freshSeries begins series of the node whose points are taken by the clock at.
func (r *rig) freshSeries(at *time.Time) *upkeep.Series {
	s := upkeep.NewSeries(upkeep.SeriesDeps{
		Catalog: flow.NewCatalog(nil, r.Node.log), Service: ownService, Metrics: r.metrics, Store: r.store,
		Wall: func() time.Time { return *at }, Own: r.services.Asked,
	})
	s.Turn()
	return s
}

// A running node counts the payments of a client, and answers with its series.
func TestSeriesOfARunningNode(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, at := r.socket(), time.Now()
	s := r.freshSeries(&at)
	const payments = 3
	pay := func(key, amount string) error {
		body := walletapi.Transfer{From: devAccount, To: "bob", Asset: "ron", AmountMinor: amount}
		_, err := c.Transfer(t.Context(), key, body)
		return err
	}
	for i := range payments {
		must(t, pay(fmt.Sprintf("series-%d", i), "1"))
	}
	r.services.Edge().Hit()
	must(t, pay("series-0", "1")) // a repeat is no payment, nor is a refusal
	for key, amount := range map[string]string{"series-0": "2", "series-poor": "99999999999"} {
		if pay(key, amount) == nil {
			t.Errorf("%s of %s was paid", key, amount)
		}
	}
	for _, mode := range []string{"atomic", "independent"} { // one op of the second is accepted
		ops := []walletapi.BatchOp{
			{Op: "transfer", From: devAccount, To: "bob", Asset: "ron", AmountMinor: "1"},
			{Op: "transfer", From: devAccount, To: "bob", Asset: "ron", AmountMinor: "99999999999"},
		}
		_, _ = c.Batch(t.Context(), "series-"+mode, walletapi.Batch{Mode: mode, Ops: ops})
	}
	if list, err := c.Series(t.Context()); err != nil || len(list.Series) != 12 {
		t.Errorf("%+v, %v", list, err)
	}
	at = at.Add(5 * time.Second)
	s.Turn()
	r.halt()
	for _, s := range s.List().Series {
		if s.Name == "payments_per_s" && *s.Values[0] != float64(payments+1)/5 {
			t.Errorf("%v payments a second, want %d in five", *s.Values[0], payments+1)
		}
		if newest := s.Values[len(s.Values)-1]; newest == nil {
			t.Errorf("%s is unknown", s.Name)
		} else if *newest <= 0 && s.Name != "refused_per_s" && s.Name != "errors_per_s" {
			t.Errorf("%s is %v", s.Name, *newest)
		}
	}
}
