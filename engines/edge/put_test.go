package edge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// put stores a text of known length.
func (r *rig) put(body string, change ...func(*content.PutRequest)) (content.Put, error) {
	r.t.Helper()
	q := content.PutRequest{Body: strings.NewReader(body), Size: int64(len(body))}
	for _, f := range change {
		f(&q)
	}
	return r.e.Put(context.Background(), q)
}

func (r *rig) mustPut(body string, change ...func(*content.PutRequest)) content.Put {
	r.t.Helper()
	p, err := r.put(body, change...)
	if err != nil {
		r.t.Fatalf("put of %.40q: %v", body, err)
	}
	return p
}

func typed(kind string) func(*content.PutRequest) {
	return func(q *content.PutRequest) { q.Type = kind }
}

func unknownSize(q *content.PutRequest) { q.Size = -1 }

// An object that was put is served by its digest, is pinned, and stays so after a restart. A second
// put changes nothing.
func TestPut(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	for _, body := range []string{"hello", "", big} {
		p := r.mustPut(body, typed("text/css; charset=utf-8"))
		if !p.New || p.Digest != b3.Sum([]byte(body)) || p.Size != int64(len(body)) || p.URL != p.Digest.String() {
			t.Errorf("%+v", p)
		}
		if o := r.want(p.Path, body); !o.Immutable || o.Type != "text/css; charset=utf-8" {
			t.Errorf("%+v", o)
		}
		if again := r.mustPut(body, unknownSize); again.New || again.Digest != p.Digest {
			t.Errorf("again: %+v", again)
		}
	}
	if has, _ := r.e.Content().Held(); has.Pins != 3 || has.Pinned != int64(len(big)+5) {
		t.Errorf("%+v", has)
	}
	r.reboot()
	r.want(asset.PathOf(b3.Sum([]byte(big))), big)
	if has, _ := r.e.Content().Held(); has.Pins != 3 {
		t.Errorf("after a restart: %+v", has)
	}
	r.sound()
}

// An object that was put is removed, unpinned and pinned by its digest. A fill does not take a
// digest.
func TestKeepByDigest(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	a, b := r.mustPut("a"), r.mustPut("b")
	ctx := context.Background()
	k, err := r.e.Keep(ctx, asset.Unpin, []string{a.URL})
	if err != nil || len(k.Changed) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	none := b3.Sum([]byte("none")).String()
	k, err = r.e.Keep(ctx, asset.Pin, []string{a.URL, none})
	if err != nil || len(k.Changed) != 1 || len(k.Missing) != 1 || k.Missing[0] != none {
		t.Errorf("%+v, %v", k, err)
	}
	page, _, err := r.e.Keys(ctx, content.KeyQuery{Prefix: edge.KeyPrefix, Limit: 10})
	if err != nil || len(page) != 2 || !page[0].Pinned || page[0].Used.IsZero() {
		t.Errorf("%+v, %v", page, err)
	}
	k, err = r.e.Keep(ctx, asset.Remove, []string{a.URL, b.URL})
	if err != nil || k.Freed != 2 {
		t.Errorf("%+v, %v", k, err)
	}
	r.refused(a.Path, asset.ErrNotFound)
	for _, bad := range []string{"b3:", "b3:xyz", strings.ToUpper(a.URL), a.URL + "0", "b3/" + a.URL[3:]} {
		var path *asset.PathError
		if _, err := r.e.Keep(ctx, asset.Remove, []string{bad}); !errors.As(err, &path) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	var path *asset.PathError
	if _, err := r.e.Fill(ctx, fill.Request{URL: a.URL}); !errors.As(err, &path) {
		t.Errorf("a fill of a digest: %v", err)
	}
	r.sound()
}

// A pin of an object without a file is refused as not stored, and a put stores the object again.
func TestPutAgainAfterRestore(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	p := r.mustPut("a")
	if err := os.Remove(r.file(p.Digest)); err != nil { // a snapshot has rows and no files
		t.Fatal(err)
	}
	r.reboot()
	k, err := r.e.Keep(context.Background(), asset.Pin, []string{p.URL})
	if err != nil || len(k.Missing) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	if again := r.mustPut("a"); !again.New {
		t.Errorf("%+v", again)
	}
	r.want(p.Path, "a")
	r.sound()
}

// A put beyond a cap is refused with the key of the cap, before the body is read if its length is
// known, and leaves nothing.
func TestPutsBeyondCaps(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) {
		r.cfg.CAS.MaxBytes, r.cfg.CAS.MaxPinned, r.cfg.Fill.MaxObjectBytes = 20<<20, 50<<10, 40<<10
	}).start()
	body := func(c byte, n int) string { return strings.Repeat(string(c), n<<10) }
	r.mustPut(body('a', 40))
	for doc, try := range map[string]struct {
		body string
		want string
	}{
		"too long":       {body('b', 41), "edge.fill.max_object_bytes = 40960"},
		"too many bytes": {body('c', 20), "edge.cas.max_pinned allows 51200"},
	} {
		for _, q := range [][]func(*content.PutRequest){nil, {unknownSize}} {
			p, err := r.put(try.body, q...)
			if err == nil || !strings.Contains(err.Error(), try.want) {
				t.Errorf("%s: %+v, %v", doc, p, err)
			}
		}
		q := content.PutRequest{Body: unread{t}, Size: int64(len(try.body)), Expect: b3.Sum([]byte(try.body))}
		if _, err := r.e.Put(context.Background(), q); err == nil || !strings.Contains(err.Error(), try.want) {
			t.Errorf("%s: %v", doc, err)
		}
	}
	r.mustPut(body('a', 40)) // is pinned
	r.mustPut(body('d', 10))
	if why := r.shown(); why != "" {
		t.Errorf("a refused put shows in readiness: %s", why)
	}
	r.sound()
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// The number of pins is bounded too.
func TestPutsBeyondURLs(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.CAS.MaxURLs = config.WriteBurst }).start()
	var full *asset.PinsError
	for i := range config.WriteBurst/2 + 1 {
		_, err := r.put(strings.Repeat("x", i))
		if last := i == config.WriteBurst/2; last != errors.As(err, &full) {
			t.Fatalf("put %d: %v", i, err)
		}
	}
	if !strings.Contains(full.Error(), "edge.cas.max_urls") {
		t.Error(full)
	}
	r.sound()
}

// A body that is cut off, other bytes than expected and a type outside of the list leave nothing.
func TestPutsThatFail(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	cut := errors.New("cut off")
	_, err := r.e.Put(context.Background(), content.PutRequest{
		Body: io.MultiReader(strings.NewReader(strings.Repeat("x", 9<<20)), broken{cut}),
		Size: 20 << 20,
	})
	if !errors.Is(err, cut) {
		t.Errorf("cut off: %v", err)
	}
	var other *asset.DigestError
	if _, err = r.put("a", func(q *content.PutRequest) { q.Expect = b3.Sum([]byte("b")) }); !errors.As(err, &other) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err = r.put("a", typed("text/cache-manifest")); !errors.Is(err, asset.ErrType) {
		t.Errorf("another type: %v", err)
	}
	r.mustPut("b", func(q *content.PutRequest) { q.Expect = b3.Sum([]byte("b")) })
	if has, _ := r.e.Content().Held(); has.Objects != 1 {
		t.Errorf("%+v", has)
	}
	r.sound()
	r.phase.Store(flow.Draining)
	if _, err = r.put("c"); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("draining: %v", err)
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// In amnesia nothing is stored.
func TestPutInAmnesia(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.amnesia = true }).start()
	if _, err := r.put("a"); !errors.Is(err, asset.ErrAmnesia) {
		t.Error(err)
	}
}

// Concurrent puts of one object store it once, and concurrent puts near the cap do not exceed it.
func TestConcurrentPuts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.CAS.MaxPinned = 10_000 }).start()
	same := bytes.Repeat([]byte("s"), 1000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh, refused := 0, 0
	for i := range 40 {
		wg.Go(func() {
			body := same
			if i%2 == 0 {
				body = bytes.Repeat([]byte{byte(i)}, 1000)
			}
			p, err := r.e.Put(context.Background(), content.PutRequest{Body: bytes.NewReader(body), Size: int64(len(body))})
			mu.Lock()
			defer mu.Unlock()
			full, over := errors.AsType[*asset.PinsError](err)
			switch {
			case over && i%2 == 0:
				refused++
				if full.MaxBytes != 10_000 {
					t.Errorf("%+v", full)
				}
			case over:
			case err != nil:
				t.Error(err)
			case p.New && i%2 == 1:
				fresh++
			}
		})
	}
	wg.Wait()
	has, _ := r.e.Content().Held()
	if has.Pinned != 10_000 || refused < 10 || refused > 11 || fresh > 1 {
		t.Errorf("%+v, %d refused, %d new", has, refused, fresh)
	}
	r.sound()
}

// A disk that fails a put is shown in readiness, and the put leaves nothing.
func TestPutOnABrokenDisk(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"create", "write", "seal", "place", "sync"} {
		var failing bool
		var mu sync.Mutex
		r := newRig(t, func(r *rig) {
			r.faults = func(at string) error {
				mu.Lock()
				defer mu.Unlock()
				if failing && at == op {
					return errors.New("disk: " + op)
				}
				return nil
			}
		}).start()
		mu.Lock()
		failing = true
		mu.Unlock()
		if _, err := r.put("a"); err == nil || !strings.Contains(err.Error(), op) {
			t.Errorf("%s: %v", op, err)
		}
		if r.shown() == "" {
			t.Errorf("%s is not shown", op)
		}
		mu.Lock()
		failing = false
		mu.Unlock()
		r.mustPut("a")
		r.sound()
		r.stop()
	}
}

// fakeNames is an index. Its names are set by the test.
type fakeNames struct {
	edge.Names
	mu        sync.Mutex
	named     map[string]sites.Named
	announced map[b3.Digest]int
	err       error
}

func newNames() *fakeNames {
	return &fakeNames{named: map[string]sites.Named{}, announced: map[b3.Digest]int{}}
}

func (f *fakeNames) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeNames) count(d b3.Digest) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.announced[d]
}

func (f *fakeNames) Announce(_ context.Context, objects []b3.Digest, ttl time.Duration) ([]b3.Digest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ttl != 24*time.Hour || f.err != nil {
		return nil, errors.Join(f.err, errors.New("not announced"))
	}
	for _, d := range objects {
		f.announced[d]++
	}
	return objects, nil
}

func (f *fakeNames) Withdraw(_ context.Context, objects []b3.Digest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range objects {
		delete(f.announced, d)
	}
	return f.err
}

func announced(q *content.PutRequest) { q.Announce = true }

// An object is announced when it is put, again when half of the life of its record has passed, and
// no longer after it was removed, unpinned or lost. A failed announcement is repeated.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := newNames()
		r := newRig(t, func(r *rig) { r.names, r.fleet = names, &edge.FleetConfig{} }).start()
		ctx := context.Background()
		a, quiet := r.mustPut("a", announced), r.mustPut("quiet")
		names.fail(errors.New("no index"))
		b := r.mustPut("b", announced)
		names.fail(nil)
		c, d := r.mustPut("c", announced), r.mustPut("d", announced)
		renewed()
		if names.count(a.Digest) != 1 || names.count(b.Digest) != 1 || names.count(quiet.Digest) != 0 {
			t.Errorf("%+v", names.announced)
		}
		if _, err := r.e.Keep(ctx, asset.Remove, []string{c.URL}); err != nil {
			t.Error(err)
		}
		if _, err := r.e.Keep(ctx, asset.Unpin, []string{b.URL, quiet.URL}); err != nil {
			t.Error(err)
		}
		drop := tables.Drop{Keys: []b3.Digest{tables.PathKey(d.URL)}, Lost: true}
		if _, err := store.Commit(ctx, r.store, store.Work, drop); err != nil {
			t.Error(err)
		}
		if names.count(c.Digest)+names.count(b.Digest) != 0 {
			t.Errorf("%+v", names.announced)
		}
		r.clock.Add(int64(12*time.Hour - 5*time.Minute))
		renewed()
		if names.count(a.Digest) != 1 {
			t.Errorf("renewed early: %+v", names.announced)
		}
		r.clock.Add(int64(5 * time.Minute))
		renewed()
		if names.count(a.Digest) != 2 || len(names.announced) != 1 {
			t.Errorf("%+v", names.announced)
		}
		if err := tables.Scan(ctx, r.store, tables.Announced, func(name b3.Digest, _ tables.AnnouncedRow) error {
			if name != a.Digest {
				t.Errorf("%s is still listed", name)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		r.stop()
	})
}

// A node outside of a fleet has no task for announcements, and keeps which objects to announce.
func TestNoFleetNoTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		for _, task := range r.e.Tasks() {
			if task.Name == announce.TaskName {
				t.Error("the task exists")
			}
		}
		p := r.mustPut("a", announced)
		names := newNames()
		r.names, r.fleet = names, &edge.FleetConfig{}
		r.reboot()
		renewed()
		if names.count(p.Digest) != 1 {
			t.Errorf("%+v", names.announced)
		}
		r.stop()
	})
}

// A damaged row of edge/announced is dropped, and the others are kept.
func TestDamagedAnnouncement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := newNames()
		r := newRig(t, func(r *rig) { r.names, r.fleet = names, &edge.FleetConfig{} }).start()
		a, b := r.mustPut("a", announced), r.mustPut("b", announced)
		r.stop()
		whole, err := os.ReadFile(r.db())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rowBytes(t, r.db(), tables.Announced.Bucket().Name) {
			if bytes.Equal(row[0], a.Digest[:]) {
				whole = flipBit(t, whole, row, 8*len(row[0])+5)
			}
		}
		if err := os.WriteFile(r.db(), whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkRows(r); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("the check finds %v", err)
		}
		r.open()
		r.start()
		r.clock.Add(int64(24 * time.Hour))
		renewed()
		if names.count(b.Digest) != 1 {
			t.Errorf("before the repair: %+v", names.announced)
		}
		renewed()
		if names.count(b.Digest) != 2 || names.count(a.Digest) != 1 {
			t.Errorf("%+v", names.announced)
		}
		r.want(a.Path, "a")
		r.stop()
	})
}

// Put of 4 KiB objects, 8 at a time.
func BenchmarkPut(b *testing.B) {
	r := newRig(b, func(r *rig) { r.cfg.Ingress.RPSLimit = 1_000_000 }).start()
	var n int
	var mu sync.Mutex
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		body := make([]byte, 4<<10)
		for pb.Next() {
			mu.Lock()
			n++
			copy(body, b3.Sum([]byte{byte(n), byte(n >> 8), byte(n >> 16)}).String())
			mu.Unlock()
			_, err := r.e.Put(context.Background(), content.PutRequest{Body: bytes.NewReader(body), Size: int64(len(body)), Type: site.Bytes})
			if err != nil {
				b.Error(err)
			}
		}
	})
}
