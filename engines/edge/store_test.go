package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/upstream"
	"ronbox/store"
)

// sized serves as many bytes as the last part of the path says.
func sized(n int) func(path string) string {
	return func(path string) string {
		return path + strings.Repeat(".", n-len(path))
	}
}

func newSizedRig(t *testing.T, n int, more ...func(*Config)) (*rig, *host, func(string) string) {
	t.Helper()
	body := sized(n)
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, body(q.URL.Path[1:])) })
	return newRig(t, on(h, more...)).start(), h, body
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x40
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, b, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A flipped byte is never delivered: the object is set aside, and fetched anew where that is allowed.
func TestFlippedByte(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 10_000)
	path := h.name + "/x"
	o := r.want(path, body("x"))
	for i := range 5 {
		r.e.Purge()
		flip(t, r.file(o.Digest), i*2499)
		if o := r.want(path, body("x")); !o.Filled {
			t.Errorf("served without a fill: %+v", o)
		}
	}
	if h.asked.Load() != 6 {
		t.Errorf("asked %d times", h.asked.Load())
	}
	r.sound()
	r.cfg.Mode = ModeOffline
	r.e.Reload(r.cfg)
	r.e.Purge()
	flip(t, r.file(o.Digest), 7)
	r.refused(path, ErrCorrupt) // at once, however long the disk takes to set it aside
	if err := r.e.write(t.Context(), &writeJob{need: 1}); err != nil {
		t.Error(err)
	}
	r.refused(path, ErrNotFound)
	r.refused("b3/"+o.Digest.String()[3:], ErrNotFound)
	aside, err := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "quarantine", "*"))
	if err != nil || len(aside) != 1 {
		t.Errorf("%v, %v", aside, err)
	}
	r.sound()
}

// A corrupt object that is met while the writer has as many changes to do as it may is refused, as soon as it is certain that no sound one comes, and
// is replaced or set aside once the writer goes on.
func TestCorruptWhileTheWriterIsBusy(t *testing.T) {
	for _, mode := range []string{ModeOffline, ModeLive} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, live)
			r.e.get = answers(func(context.Context, upstream.Request) error { return nil })
			r.start()
			o := r.want("example.com/x", "of x")
			flip(t, r.file(o.Digest), 1)
			r.stop()
			r.cfg.Mode = mode
			r.open()
			r.e.get = answers(func(context.Context, upstream.Request) error { return nil })
			late := []flow.Task{}
			for _, task := range r.e.Tasks() {
				if task.Name == taskWriter {
					late = append(late, task)
				} else {
					r.sup.Start(task)
				}
			}
			for range writeQueue {
				if err := r.e.writes.TrySend(&writeJob{need: 1, reply: flow.NewReply[struct{}]()}); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			if mode == ModeOffline {
				r.refused("example.com/x", ErrCorrupt)
				r.refused("b3/"+o.Digest.String()[3:], ErrCorrupt)
				if d := time.Since(began); d > time.Second {
					t.Errorf("refused after %s", d)
				}
			} else {
				r.refused("example.com/x", context.DeadlineExceeded)
				if d := time.Since(began); !within(d, 5*time.Second) {
					t.Errorf("refused after %s", d)
				}
			}
			r.sup.Start(late...)
			synctest.Wait()
			if mode == ModeLive {
				r.want("example.com/x", "of x")
			} else {
				r.refused("example.com/x", ErrCorrupt) // set aside now
				r.refused("example.com/x", ErrNotFound)
			}
			r.sound()
			r.stop()
		})
	}
}

// An object that was brought anew since a reader met it corrupt is not set aside.
func TestLateSetAside(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, hotObject + 1} {
		r, h, body := newSizedRig(t, size)
		o := r.want(h.name+"/x", body("x"))
		if err := r.e.setAside(context.Background(), o.Digest, nil); err != nil {
			t.Error(err)
		}
		r.e.Purge()
		if o := r.want(h.name+"/x", body("x")); o.Filled {
			t.Errorf("%d bytes: set aside although sound", size)
		}
		r.sound()
	}
}

// A large object is a file of its own; one that was cut short is fetched anew.
func TestLargeObject(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, hotObject+1)
	o := r.want(h.name+"/x", body("x"))
	if _, plain := o.File.(*os.File); !plain || o.Bytes != nil || o.From != FromCAS {
		t.Errorf("%T of %s", o.File, o.From)
	}
	if err := errors.Join(os.Chmod(r.file(o.Digest), 0o600), os.Truncate(r.file(o.Digest), 5)); err != nil {
		t.Fatal(err)
	}
	if o := r.want(h.name+"/x", body("x")); !o.Filled {
		t.Error("served without a fill")
	}
	r.sound()
}

// A request for an object that is known to be used writes nothing to the disk, whatever its size.
func TestUseIsNotedOnce(t *testing.T) {
	t.Parallel()
	for doc, size := range map[string]int{"small": 100, "large": hotObject + 1} {
		r, h, body := newSizedRig(t, size)
		o := r.want(h.name+"/x", body("x"))
		noted := func() time.Time {
			r.e.hot.Settle()
			return r.e.cas.Used(o.Digest)
		}
		first := noted()
		for range 3 {
			r.clock.Add(int64(time.Hour))
			r.want(h.name+"/x", body("x"))
			if again := noted(); !again.Equal(first) {
				t.Errorf("%s: noted at %v, and again at %v", doc, first, again)
			}
		}
		r.e.Purge()
		if r.want(h.name+"/x", body("x")); noted().Sub(first) < 3*time.Hour {
			t.Errorf("%s: noted at %v, and no more", doc, first)
		}
	}
}

// A row without its file is a miss.
func TestLostFile(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 100)
	o := r.want(h.name+"/x", body("x"))
	r.e.Purge()
	if err := os.Remove(r.file(o.Digest)); err != nil {
		t.Fatal(err)
	}
	if o := r.want(h.name+"/x", body("x")); !o.Filled {
		t.Error("served without a fill")
	}
	r.sound()
}

// When the quota is reached, those used least recently leave.
func TestEviction(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000, func(c *Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 10_500, 10_500 })
	for i := range 10 {
		r.want(fmt.Sprintf("%s/%d", h.name, i), body(fmt.Sprint(i)))
		r.clock.Add(int64(2 * time.Minute))
	}
	r.e.Purge()
	r.want(h.name+"/0", body("0")) // used again
	r.want(h.name+"/new", body("new"))
	r.cfg.Mode = ModeOffline
	r.e.Reload(r.cfg)
	for path, there := range map[string]bool{"/0": true, "/1": false, "/2": false, "/3": true, "/9": true, "/new": true} {
		if _, _, err := r.read(h.name + path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	if has, _ := r.e.room.held(); has.objects != 9 {
		t.Errorf("%d objects, not nine tenths", has.objects)
	}
	for name, want := range map[string]float64{"edge_cas_objects": 9, "edge_cas_bytes": 9000, "edge_cas_urls": 9} {
		if n := r.count(name); n != want {
			t.Errorf("%s %v, want %v", name, n, want)
		}
	}
	r.sound()
}

// Objects leave as soon as the disk is short of space, whoever took it, and before it has less than min_free. None leaves if that would not help.
func TestEvictionForOthers(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 30)
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, sized(1000)(q.URL.Path[1:])) })
	r := newRig(t, on(h, func(c *Config) { c.CAS.MinFree = 4000 }))
	r.e.diskFree = func() (int64, error) {
		has, _ := r.e.room.held()
		return free.Load() - has.bytes, nil
	}
	r.start()
	for i := range 10 {
		r.want(fmt.Sprint(h.name, "/", i), sized(1000)(fmt.Sprint(i)))
		r.clock.Add(int64(time.Minute))
	}
	objects := func() int64 { has, _ := r.e.room.held(); return has.objects }
	free.Store(4000 + 1000 + 9500) // of which the objects have 10,000, and the headroom is 1000
	until(t, "two leave", func() bool { return objects() == 8 })
	free.Store(100)
	time.Sleep(1500 * time.Millisecond)
	if n := objects(); n != 8 {
		t.Errorf("%d objects where eviction does not help", n)
	}
	r.sound()
}

// A host that answers any path with the same bytes takes no more rows than there may be, and costs no other object its own.
func TestManyURLsOfOneObject(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, "/any/") {
			serve(w, "the same")
			return
		}
		echo(w, q)
	})
	r := newRig(t, on(h, func(c *Config) { c.CAS.MaxURLs = writeBurst })).start()
	for i := range 20 {
		r.want(fmt.Sprint(h.name, "/own/", i), fmt.Sprint("of own/", i))
	}
	for i := range 2 * writeBurst {
		r.want(fmt.Sprint(h.name, "/any/", i), "the same")
		if has, _ := r.e.room.held(); has.urls > writeBurst {
			t.Fatalf("%d URLs", has.urls)
		}
	}
	r.reboot()
	r.sound()
	for i := range 20 {
		if o := r.want(fmt.Sprint(h.name, "/own/", i), fmt.Sprint("of own/", i)); o.Filled {
			t.Errorf("/own/%d had been evicted", i)
		}
	}
	r.cfg.CAS.MaxURLs = 1 // fewer than there are, all objects alike
	r.e.Reload(r.cfg)
	r.want(h.name+"/own/new", "of own/new")
	if has, _ := r.e.room.held(); has.urls != 1 {
		t.Errorf("%d URLs", has.urls)
	}
	r.sound()
}

// A full store refuses what it has no room for, evicts nothing for it, and goes on to serve what it has.
func TestFullStore(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000, func(c *Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 2500, 2500 })
	r.want(h.name+"/x", body("x"))
	quota := r.cfg
	quota.CAS.MaxBytes = 900
	r.e.Reload(quota)
	r.refused(h.name+"/y", ErrFull)
	r.want(h.name+"/x", body("x"))
	floor := r.cfg
	floor.CAS.MinFree = 1 << 50
	r.e.Reload(floor)
	r.refused(h.name+"/y", ErrFull)
	r.want(h.name+"/x", body("x"))
	r.e.Reload(r.cfg)
	r.want(h.name+"/y", body("y"))
	r.sound()
}

// A disk that is full or read-only refuses fills in its own words and shows; hits go on, and it heals without a restart.
func TestFaultyDisk(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"create", "write", "seal", "place", "sync"} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EROFS} {
			var broken atomic.Bool
			body := sized(500)
			h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, body(q.URL.Path[1:])) })
			r := newRig(t, on(h), func(r *rig) {
				r.faults = func(at string) error {
					if broken.Load() && at == op {
						return fault
					}
					return nil
				}
			}).start()
			r.want(h.name+"/x", body("x"))
			broken.Store(true)
			_, _, err := r.read(h.name + "/y")
			if !errors.Is(err, fault) || errors.Is(err, ErrFull) != (fault == syscall.ENOSPC) {
				t.Errorf("%s: %v", op, err)
			}
			if m := r.board.Report(service, "").Causes; m[service+"."+keyStore] == "" {
				t.Errorf("%s: readiness says %v", op, m)
			}
			r.want(h.name+"/x", body("x"))
			r.sound()
			broken.Store(false)
			r.want(h.name+"/y", body("y"))
			if m := r.board.Report(service, "").Causes; m[service+"."+keyStore] != "" {
				t.Errorf("%s: readiness says %v", op, m)
			}
			r.sound()
			r.stop()
		}
	}
}

// errKilled stands for the moment at which a process is killed.
var errKilled = errors.New("killed")

// Wherever between two changes of a file a process is killed, the next finds every row with its object, every object with its bytes, and nothing
// else. What was answered is there.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	points := []int{0, 1, 2, 3, 4, 5, 7, 9, 10, 11, 15, 19, 20, 21, 22, 27, 33, 38, 44, 51, 60}
	if testing.Short() {
		points = points[:7]
	}
	for _, n := range points {
		var ops, asked atomic.Int64
		var dead atomic.Bool
		h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
			serve(w, fmt.Sprint(q.URL.Path[1:], " of ", asked.Add(1), strings.Repeat(".", 300)))
		})
		r := newRig(t, on(h, func(c *Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 2000, 2000 }), func(r *rig) {
			r.faults = func(string) error {
				if ops.Add(1) > int64(n) {
					dead.Store(true)
				}
				if dead.Load() { // what comes after the kill never happens
					return errKilled
				}
				return nil
			}
		}).start()
		answered := map[string]b3.Digest{}
		for i := 0; i < 12 && !dead.Load(); i++ {
			url := fmt.Sprintf("https://%s/%d", h.name, i%4)
			f, err := r.e.Fill(context.Background(), FillRequest{URL: url, Refresh: true})
			if err == nil {
				answered[f.Path] = f.Digest
			}
		}
		dead.Store(true)
		if stray, err := os.Create(filepath.Join(r.dir, "edge", "cas", "tmp", "fill-123")); err != nil || stray.Close() != nil {
			t.Fatal(err)
		}
		r.faults, r.cfg.Mode = nil, ModeOffline
		r.reboot()
		r.sound()
		for path, digest := range answered {
			o, err := r.e.Asset(context.Background(), path)
			if err == nil && o.Digest != digest {
				t.Errorf("kill %d: %s has %s, answered was %s", n, path, o.Digest, digest)
			}
			if err != nil && !errors.Is(err, ErrNotFound) { // it may have been evicted
				t.Errorf("kill %d: %s: %v", n, path, err)
			}
		}
		r.stop()
	}
}

// An object that one URL leaves while another brings it is there afterwards, in whatever order one burst has them.
func TestLeftAndBroughtAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	job := func(url, body string) *writeJob {
		temp, err := r.e.cas.Create(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := temp.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := temp.Seal(); err != nil {
			t.Fatal(err)
		}
		name, size := temp.Sum()
		return &writeJob{temp: temp, row: Stored{URL: url, Digest: name, Size: size}, reply: flow.NewReply[struct{}]()}
	}
	for _, order := range []func() []*writeJob{
		func() []*writeJob { return []*writeJob{job("a", "one"), job("b", "zero")} },
		func() []*writeJob { return []*writeJob{job("a", "two"), job("b", "one")} },
		func() []*writeJob {
			return []*writeJob{job("a", "one"), job("b", "two"), job("a", "three"), job("c", "one")}
		},
		func() []*writeJob {
			return []*writeJob{job("a", "one"), job("a", "two"), job("b", "two"), job("c", "two")}
		},
	} {
		jobs := order()
		r.e.install(ctx, jobs)
		for _, j := range jobs {
			if _, err := j.reply.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		r.sound()
	}
}

// However objects are installed and dropped, the rows agree: each URL leads to an object, which counts the URLs that lead to it, and what a
// command says it has changed is what has changed.
func TestRowsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, err := store.NewScratch(time.Unix(1, 0), Buckets()...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		var has tally
		url := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		for range rapid.IntRange(1, 12).Draw(t, "commands") {
			var done change
			if rapid.IntRange(0, 2).Draw(t, "which") == 0 {
				urls := rapid.SliceOfNDistinct(url, 1, 4, func(u string) string { return u }).Draw(t, "drop")
				keys := make([]b3.Digest, len(urls))
				for i, u := range urls {
					keys[i] = pathKey(u)
				}
				done, err = store.Try(s, dropCmd{keys})
			} else {
				d := b3.Digest{byte(rapid.IntRange(1, 3).Draw(t, "digest"))}
				done, err = store.Try(s, installCmd{Stored{URL: url.Draw(t, "url"), Digest: d, Size: 10 * int64(d[0])}})
			}
			if err != nil {
				t.Fatal(err)
			}
			has.add(done.tally)
			agree(t, s.Reader(), has, done.freed)
		}
	})
}

func agree(t *rapid.T, r store.Reader, has tally, freed []b3.Digest) {
	leads := map[b3.Digest]int64{}
	for key, row := range paths.All(r) {
		leads[row.Digest]++
		has.urls--
		if b, known := blobs.Get(r, row.Digest); !known || b.Size != row.Size || key != pathKey(row.URL) {
			t.Fatalf("%s leads to nothing", row.URL)
		}
	}
	for name, b := range blobs.All(r) {
		has.add(tally{-b.Size, -1, 0})
		if b.Refs != leads[name] {
			t.Fatalf("%s counts %d, %d lead to it", name, b.Refs, leads[name])
		}
	}
	if has != (tally{}) {
		t.Fatalf("counted %+v too many", has)
	}
	for _, name := range freed {
		if blobs.Has(r, name) {
			t.Fatalf("%s was freed and is there", name)
		}
	}
}
