package meter

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/usage"
	"ronbox/store"
	"ronbox/store/storetest"
)

const epochLength = time.Hour

// meterKey signs the statements of the rigs.
var meterKey = func() ed25519.PrivateKey {
	seed := b3.Sum([]byte("meter"))
	return ed25519.NewKeyFromSeed(seed[:])
}()

func fleetOf(version uint64, length time.Duration) *fleet.View {
	v := &fleet.View{Version: version, Genesis: b3.Sum([]byte("genesis")), Self: "node/self", Epoch: length}
	for _, id := range []string{"node/a", "node/b", "node/self"} {
		v.Nodes = append(v.Nodes, fleet.Node{ID: id})
	}
	return v
}

// rig is a meter on a real store in a temporary folder. Its clock is an hour ahead of the wall
// clock, at the start of an epoch.
type rig struct {
	t       testing.TB
	path    string
	clock   atomic.Int64 // added to the wall clock, ns
	view    *fleet.View
	catalog *flow.Catalog
	store   *store.Store
	sup     *flow.Supervisor
	meter   *Meter
	stopped bool
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "ronbox.db"), view: fleetOf(7, epochLength)}
	next := time.Now().Add(epochLength).Truncate(epochLength)
	r.clock.Store(int64(time.Until(next) + time.Second))
	id, err := store.NewIdentity(time.Now())
	if err = errors.Join(err, store.Create(r.path, id)); err != nil {
		t.Fatal(err)
	}
	r.open()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }

// open opens the file and makes a meter, whose task does not run.
func (r *rig) open() {
	r.t.Helper()
	ctx := context.Background()
	r.catalog = flow.NewCatalog(nil, hclog.NewNullLogger())
	r.store = store.New(store.DefaultConfig(), store.Options{
		Now:       r.now,
		Path:      r.path,
		Catalog:   r.catalog,
		Producers: map[store.Lane][]string{store.Work: {"edge.meter"}},
	})
	r.meter = New(Deps{
		Catalog: r.catalog,
		Store:   r.store,
		Log:     hclog.NewNullLogger(),
		Now:     r.now,
		Signer:  func() (string, ed25519.PrivateKey) { return "12D3KooWself", meterKey },
		View:    func() *fleet.View { return r.view },
		Damaged: func(string) {},
	})
	r.sup = flow.NewSupervisor(ctx, r.catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(ctx), r.store.Prepare(ctx)); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.stopped = false
}

// stop closes the file. It may be called again.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.meter.tick.Stop()
	r.store.CloseLanes()
	r.sup.Drain("store", 5*time.Second, time.Second)
	r.sup.Close()
	if err := r.store.Close(); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
}

// open2 opens the file again, with a newer version of the registry.
func (r *rig) open2() {
	r.stop()
	r.view = fleetOf(8, epochLength)
	r.open()
}

// until polls ok for up to a minute.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// object returns the digest of an object.
func object(name string) b3.Digest { return b3.Sum([]byte(name)) }

func (r *rig) epoch() uint64 { return usage.EpochOf(r.now(), epochLength) }

// step writes what waits, as the task does each minute.
func (r *rig) step() {
	r.meter.last = time.Time{}
	r.meter.step(context.Background(), false)
}

// pass lets an epoch end, and its grace.
func (r *rig) pass() {
	r.clock.Add(int64(epochLength + usage.Grace(epochLength)))
	r.step()
}

// statement returns the statement of an epoch, which must be signed.
func (r *rig) statement(epoch uint64) usage.Statement {
	r.t.Helper()
	raw, err := r.meter.Statement(context.Background(), epoch)
	if err != nil {
		r.t.Fatalf("epoch %d: %v", epoch, err)
	}
	s, err := usage.Open(raw, meterKey.Public().(ed25519.PublicKey))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// counted returns the open counts of an epoch.
func (r *rig) counted(epoch uint64) (row countRow) {
	r.t.Helper()
	err := r.store.View(context.Background(), func(rd store.Reader) error {
		row, _ = counts.Get(rd, epoch)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return row
}

// A statement has what was received from others, asked for and placed, under the identity of the
// node. It is final after the grace, and does not change after that.
func TestStatement(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.epoch()
	r.meter.Received("node/b", object("1"), 100, false)
	r.meter.Received("node/a", object("2"), 20, true)
	r.meter.Received("node/a", object("3"), 3, false)
	r.meter.Received("node/self", object("4"), 1<<40, false)     // of itself
	r.meter.Received("node/stranger", object("5"), 1<<40, false) // of no member
	r.step()
	open := new(OpenEpochError)
	if _, err := r.meter.Statement(t.Context(), n); !errors.As(err, &open) || !open.Final.Equal(finalAt(n, epochLength)) {
		t.Fatalf("an open epoch: %v", err)
	}
	r.clock.Add(int64(epochLength))
	r.step()
	if _, err := r.meter.Statement(t.Context(), n); !errors.As(err, &open) {
		t.Fatalf("in its grace: %v", err)
	}
	r.clock.Add(int64(usage.Grace(epochLength)))
	r.step()
	want := usage.Statement{
		Genesis: b3.Sum([]byte("genesis")), Node: "node/self", Identity: "12D3KooWself",
		Incarnation: r.store.Info().Incarnation, Epoch: n, Length: epochLength, Head: 7,
		Rows: []usage.Row{{Node: "node/a", Asked: 3, Placed: 20, Objects: 2}, {Node: "node/b", Asked: 100, Objects: 1}},
	}
	if got := r.statement(n); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s := r.statement(n); len(r.counted(n).Nodes) > 0 || len(s.Rows) != 2 {
		t.Error("counts of a final epoch are kept")
	}
	for _, epoch := range []uint64{n - 1, n + 2, math.MaxUint64} {
		if _, err := r.meter.Statement(t.Context(), epoch); !errors.Is(err, ErrNoStatement) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	first, _ := r.meter.Statement(t.Context(), n)
	r.view = fleetOf(8, epochLength)
	r.pass()
	r.open2()
	if again, err := r.meter.Statement(t.Context(), n); err != nil || string(again) != string(first) {
		t.Errorf("the statement has changed: %s, %v", again, err)
	}
	if s := r.statement(n + 1); len(s.Rows) != 0 || s.Head != 8 {
		t.Errorf("an epoch without counts: %+v", s)
	}
}

// An object counts once in an epoch, from whatever node it comes, however often it is evicted and
// fetched, also over a restart. In the next epoch it counts again.
func TestEvictAndFetch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.epoch()
	for range 3 {
		r.meter.Received("node/a", object("x"), 10, false)
		r.meter.Received("node/b", object("x"), 10, true)
		r.step()
		r.meter.Received("node/b", object("x"), 10, false)
	}
	r.step()
	r.open2()
	r.meter.Received("node/b", object("x"), 10, false)
	r.pass()
	if s := r.statement(n); len(s.Rows) != 1 || s.Rows[0] != (usage.Row{Node: "node/a", Asked: 10, Objects: 1}) {
		t.Errorf("%+v", s.Rows)
	}
	r.meter.Received("node/b", object("x"), 10, false)
	r.step()
	if row := r.counted(n + 1); row.Bytes != 10 {
		t.Errorf("in the next epoch: %+v", row)
	}
}

// A kill before the command loses counts, and never doubles them. A stop loses none.
func TestKillBeforeCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.epoch()
	r.step()
	r.meter.Received("node/a", object("x"), 10, false)
	r.open2() // the task does not run: what waits is lost
	if row := r.counted(n); row.Bytes != 0 {
		t.Errorf("lost counts are found: %+v", row)
	}
	r.meter.Received("node/a", object("x"), 10, false)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.meter.run(stopped); !errors.Is(err, context.Canceled) { // it writes what waits
		t.Error(err)
	}
	r.open2()
	if row := r.counted(n); row.Bytes != 10 {
		t.Errorf("after a stop: %+v", row)
	}
	r.meter.Received("node/a", object("x"), 10, false)
	r.step()
	if row := r.counted(n); row.Bytes != 10 {
		t.Errorf("after the same object: %+v", row)
	}
}

// hold is a command that waits inside the committer.
type hold struct {
	began, end chan struct{}
	once       *sync.Once
}

func (h hold) release() { h.once.Do(func() { close(h.end) }) }

func (hold) Kind() string { return "edge.hold/1" }

func (h hold) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	close(h.began)
	<-h.end
	return struct{}{}, nil
}

// Counts with an unknown outcome are dropped: they count at most once, although the epoch changes.
// Counts that were surely not written are tried again.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.epoch()
	r.step()
	var wg sync.WaitGroup
	defer wg.Wait()
	holding := func() hold {
		h := hold{make(chan struct{}), make(chan struct{}), new(sync.Once)}
		wg.Go(func() { _, _ = store.Commit(context.Background(), r.store, store.Work, h) })
		return h
	}
	count := func() (cancel func(), done chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		done = make(chan error, 1)
		wg.Go(func() { done <- r.meter.count(ctx, fleetOf(7, epochLength)) })
		return cancel, done
	}
	r.meter.Received("node/a", object("x"), 10, false)

	first := holding()
	defer first.release()
	<-first.began
	cancel, done := count() // it waits for its turn
	until(t, "it is queued", func() bool { return len(r.waiting()) == 0 && r.queued() == 1 })
	cancel()
	if err := <-done; err == nil || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("before its turn: %v", err)
	}
	if len(r.waiting()) != 1 {
		t.Fatal("it is not tried again")
	}

	second := holding()
	defer second.release()
	until(t, "it is behind the canceled command", func() bool { return r.queued() == 2 })
	cancel, done = count()
	until(t, "all are queued", func() bool { return r.queued() == 3 })
	first.release()
	<-second.began // the count is in the same group
	cancel()
	if err := <-done; !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("in its turn: %v", err)
	}
	second.release()
	if len(r.waiting()) != 0 {
		t.Fatal("it is tried again")
	}
	r.pass()
	r.step()
	sum := r.counted(n + 1).Bytes
	for _, row := range r.statement(n).Rows {
		sum += row.Bytes()
	}
	if sum > 10 {
		t.Errorf("10 bytes count for %d", sum)
	}
}

func (r *rig) waiting() []receipt {
	r.meter.mu.Lock()
	defer r.meter.mu.Unlock()
	var all []receipt
	for _, one := range r.meter.wait {
		all = append(all, one)
	}
	return all
}

// queued returns the number of commands in the lane of work.
func (r *rig) queued() (n int) {
	for _, c := range r.catalog.Channels() {
		if c.Service == "store" && c.Name == "work" {
			n = c.Len
		}
	}
	return n
}

// A change of the length begins another numbering. The epoch of the old length that was open ends
// at its time, with what was counted until the change.
func TestLengthChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.epoch()
	r.meter.Received("node/a", object("1"), 1, false)
	r.step()
	const short = 10 * time.Minute
	r.view = fleetOf(8, short)
	r.meter.Received("node/a", object("1"), 1, false)
	r.meter.Received("node/a", object("2"), 2, false)
	now := usage.EpochOf(r.now(), short)
	r.step()
	r.pass()
	if s := r.statement(old); s.Length != epochLength || s.Rows[0].Bytes() != 1 {
		t.Errorf("the old epoch: %+v", s)
	}
	if s := r.statement(now); s.Length != short || s.Rows[0].Bytes() != 3 {
		t.Errorf("the new epoch: %+v", s)
	}
	// A number that another length has is not counted in.
	tx := storetest.NewTx(t, Buckets()...)
	for _, length := range []int64{3600, 3601} {
		got := []receipt{{Object: objectKey{byte(length)}, Node: "node/a", Size: 1}}
		_, err := storetest.Do(tx, countReceived{length, "i", got})
		if err != nil {
			t.Fatal(err)
		}
	}
	for epoch, row := range counts.All(tx.Reader()) {
		if row.Length == 3600 && row.Bytes != 1 ||
			row.Length == 3601 && epoch == usage.EpochOf(time.Unix(1767225600, 0), time.Hour) {
			t.Errorf("epoch %d: %+v", epoch, row)
		}
	}
}

// A restored file makes no statement of an epoch that ended before it was accepted, because the
// file that it was copied from may have made one.
func TestRestoredFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.epoch()
	r.meter.Received("node/a", object("1"), 1, false)
	r.step()
	_, err := store.Commit(t.Context(), r.store, store.Work, otherIncarnation{n})
	if err != nil {
		t.Fatal(err)
	}
	r.pass()
	if _, err := r.meter.Statement(t.Context(), n); !errors.Is(err, ErrNoStatement) {
		t.Errorf("a statement of another incarnation: %v", err)
	}
	if row := r.counted(n); row.Length != 0 {
		t.Errorf("its counts are kept: %+v", row)
	}
}

// otherIncarnation makes the counts of an epoch those of another incarnation.
type otherIncarnation struct{ epoch uint64 }

func (otherIncarnation) Kind() string { return "edge.other/1" }

func (c otherIncarnation) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	row, _ := counts.Get(r, c.epoch)
	row.Incarnation = "another"
	counts.Put(w, c.epoch, row)
	return struct{}{}, nil
}

// Beyond its bounds the meter counts nothing, and stays within them.
func TestMeterBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range maxPending + 10 {
		r.meter.Received("node/a", object(fmt.Sprint(i)), 1, false)
	}
	if n := len(r.waiting()); n != maxPending {
		t.Errorf("%d objects wait", n)
	}
	full := countRow{Objects: maxCounted}
	if full.add(receipt{Node: "node/a", Size: 1}) {
		t.Error("too many objects")
	}
	full = countRow{Bytes: usage.MaxBytes - 1}
	if full.add(receipt{Node: "node/a", Size: 2}) || !full.add(receipt{Node: "node/a", Size: 1}) {
		t.Error("too many bytes")
	}
	full = countRow{}
	for i := range usage.MaxNodes {
		full.add(receipt{Node: fmt.Sprintf("node/%04d", i), Size: 1})
	}
	if full.add(receipt{Node: "node/x", Size: 1}) || !full.add(receipt{Node: "node/0007", Size: 1}) {
		t.Error("too many nodes")
	}
	tx := storetest.NewTx(t, Buckets()...)
	for i := range maxOpenEpochs + 3 {
		if _, err := storetest.Do(tx, countReceived{int64(3600 - 200*i), "i", nil}); err != nil {
			t.Fatal(err)
		}
	}
	if n := epochsOpen(tx.Reader()); n != maxOpenEpochs {
		t.Errorf("%d epochs are open", n)
	}
}

// Statements are kept for 90 days, and at most maxStatements of them.
func TestStatementsAreDropped(t *testing.T) {
	t.Parallel()
	tx := storetest.NewTx(t, Buckets()...)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	put := fill{rows: map[uint64]time.Time{}}
	for i := range uint64(maxStatements) {
		put.rows[i] = now.Add(-time.Duration(maxStatements-i) * time.Minute)
	}
	put.rows[5_000], put.rows[6_000] = now.Add(-91*24*time.Hour), now.Add(-89*24*time.Hour)
	if _, err := storetest.Do(tx, put); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Do(tx, dropOld{now}); err != nil {
		t.Fatal(err)
	}
	r := tx.Reader()
	if statements.Has(r, 5_000) || statements.Has(r, 6_000) || !statements.Has(r, 0) {
		t.Error("others than the oldest are dropped")
	}
}

type fill struct{ rows map[uint64]time.Time }

func (fill) Kind() string { return "edge.fill/1" }

func (c fill) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for epoch, end := range c.rows {
		statements.Put(w, epoch, statementRow{End: end.Unix(), Signed: []byte("x")})
	}
	return struct{}{}, nil
}

type dropOld struct{ now time.Time }

func (dropOld) Kind() string { return "edge.drop_old/1" }

func (c dropOld) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	dropStatements(r, w, c.now)
	return struct{}{}, nil
}

// A damaged row costs the counts of open epochs, or the statement of its epoch, and nothing else.
func TestDamagedCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.epoch()
	r.meter.Received("node/a", object("1"), 1, false)
	r.step()
	r.pass()
	for _, bucket := range []*store.Bucket{bStatements, bCounts} {
		if _, err := store.Commit(t.Context(), r.store, store.Work, damageAll{bucket}); err != nil {
			t.Fatal(err)
		}
		if err := r.store.View(t.Context(), Check); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: the check finds %v", bucket.Name, err)
		}
	}
	r.meter.Received("node/a", object("2"), 2, false)
	r.step() // it drops the counts
	r.meter.Received("node/a", object("3"), 3, false)
	r.step()
	if row := r.counted(n + 1); row.Bytes != 3 {
		t.Errorf("%+v", row)
	}
	if _, err := r.meter.Statement(t.Context(), n); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a damaged statement: %v", err)
	}
	r.pass()
	if s := r.statement(n + 1); len(s.Rows) != 1 || s.Rows[0].Bytes() != 3 {
		t.Errorf("%+v", s)
	}
}

// damageAll flips a bit in every row of a bucket.
type damageAll struct{ bucket *store.Bucket }

func (damageAll) Kind() string { return "edge.damage/1" }

func (c damageAll) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for key, row := range r.Range(c.bucket, nil, nil) {
		row = append([]byte{}, row...)
		row[len(row)/2] ^= 1
		w.Put(c.bucket, append([]byte{}, key...), row)
	}
	return struct{}{}, nil
}

// Whatever is received, in whatever order, with restarts and changes of the epoch, the statements
// never attest more than was received, and each object once in each epoch.
func TestNeverOver(t *testing.T) {
	r := newRig(t)
	rapid.Check(t, func(t *rapid.T) {
		r.pass() // an epoch of its own
		r.pass()
		received, names := uint64(0), map[string]bool{}
		nodes := []string{"node/a", "node/b", "node/self", "node/x"}
		first := r.epoch()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				r.step()
			case 1:
				r.pass()
			case 2:
				r.open2()
			default:
				name := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "object"))
				node := rapid.SampledFrom(nodes).Draw(t, "node")
				r.meter.Received(node, object(name), 7, rapid.Bool().Draw(t, "placed"))
				if names[name] = true; node == "node/a" || node == "node/b" {
					received += 7
				}
			}
		}
		r.step()
		last := r.epoch()
		r.pass()
		attested := uint64(0)
		for n := first; n <= last; n++ {
			raw, err := r.meter.Statement(context.Background(), n)
			if errors.Is(err, ErrNoStatement) {
				continue // no step was made in this epoch
			}
			s, err := usage.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			objects := uint64(0)
			for _, row := range s.Rows {
				if row.Node == "node/self" || row.Node == "node/x" || row.Bytes() != 7*row.Objects {
					t.Fatalf("%+v", row)
				}
				objects += row.Objects
			}
			if objects > uint64(len(names)) {
				t.Fatalf("epoch %d: %+v of %d objects", n, s.Rows, len(names))
			}
			attested += 7 * objects
		}
		if attested > received {
			t.Fatalf("%d bytes are attested, %d were received", attested, received)
		}
	})
}
