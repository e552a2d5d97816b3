package edge_test

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

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
)

// sized returns a function that pads a path to n bytes.
func sized(n int) func(path string) string {
	return func(path string) string {
		return path + strings.Repeat(".", n-len(path))
	}
}

func newSizedRig(t *testing.T, n int, more ...func(*config.Config)) (*rig, *host, func(string) string) {
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

// A flipped byte is never served: the object is set aside, and fetched again if that is allowed.
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
	r.cfg.Mode = config.ModeOffline
	r.e.Reload(r.cfg)
	r.e.Purge()
	flip(t, r.file(o.Digest), 7)
	r.refused(path, asset.ErrCorrupt) // at once, even if the disk is slow to set it aside
	if err := r.barrier(); err != nil {
		t.Error(err)
	}
	r.refused(path, asset.ErrNotFound)
	r.refused("b3/"+o.Digest.String()[3:], asset.ErrNotFound)
	aside, err := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "quarantine", "*"))
	if err != nil || len(aside) != 1 {
		t.Errorf("%v, %v", aside, err)
	}
	r.sound()
}

// A corrupt object is refused while the queue of the writer is full, and replaced or set aside when
// the writer continues.
func TestCorruptWhileTheWriterIsBusy(t *testing.T) {
	for _, mode := range []string{config.ModeOffline, config.ModeLive} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, live)
			*r.e.Get() = answers(func(context.Context, upstream.Request) error { return nil })
			r.start()
			o := r.want("example.com/x", "of x")
			flip(t, r.file(o.Digest), 1)
			r.stop()
			r.cfg.Mode = mode
			r.open()
			*r.e.Get() = answers(func(context.Context, upstream.Request) error { return nil })
			late := []flow.Task{}
			for _, task := range r.e.Tasks() {
				if task.Name == content.TaskWriter {
					late = append(late, task)
				} else {
					r.sup.Start(task)
				}
			}
			_ = r.e.Content().Failed(asset.ErrDisk)
			for range 100 { // more than the queue of the writer holds
				r.e.Content().HealSoon()
			}
			began := time.Now()
			if mode == config.ModeOffline {
				r.refused("example.com/x", asset.ErrCorrupt)
				r.refused("b3/"+o.Digest.String()[3:], asset.ErrCorrupt)
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
			if mode == config.ModeLive {
				r.want("example.com/x", "of x")
			} else {
				r.refused("example.com/x", asset.ErrCorrupt) // set aside now
				r.refused("example.com/x", asset.ErrNotFound)
			}
			r.sound()
			r.stop()
		})
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

// A disk that is full or read-only refuses fills with its own error, which readiness shows. Hits
// are served, and the store heals without a restart.
func TestFaultyDisk(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"create", "write", "seal", "place", "sync"} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
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
			if full := fault == syscall.ENOSPC; !errors.Is(err, fault) || errors.Is(err, asset.ErrFull) != full ||
				errors.Is(err, asset.ErrDisk) == full {
				t.Errorf("%s: %v", op, err)
			}
			if m := r.board.Report(service, "").Causes; m[service+"."+edge.KeyStore] == "" {
				t.Errorf("%s: readiness says %v", op, m)
			}
			r.want(h.name+"/x", body("x"))
			r.sound()
			broken.Store(false)
			r.want(h.name+"/y", body("y"))
			if m := r.board.Report(service, "").Causes; m[service+"."+edge.KeyStore] != "" {
				t.Errorf("%s: readiness says %v", op, m)
			}
			r.sound()
			r.stop()
		}
	}
}

// An object that the disk does not read is refused with an error of its own, which readiness shows.
// Here its file is a link to itself.
func TestUnreadableObject(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 100)
	o := r.want(h.name+"/x", body("x"))
	r.e.Purge()
	path := r.file(o.Digest)
	if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.read(h.name + "/x"); !errors.Is(err, asset.ErrDisk) || !errors.Is(err, syscall.ELOOP) {
		t.Errorf("err = %v, want ErrDisk", err)
	}
	if m := r.board.Report(service, "").Causes; !strings.Contains(m[service+"."+edge.KeyStore], path) {
		t.Errorf("readiness says %v", m)
	}
}

// errKilled marks the moment at which the process is killed.
var errKilled = errors.New("killed")

// After a kill between any two changes of files, every row has its object, every object its bytes
// and a row, and answered fills are stored.
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
		r := newRig(t, on(h, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 2000, 2000 }), func(r *rig) {
			r.faults = func(string) error {
				if ops.Add(1) > int64(n) {
					dead.Store(true)
				}
				if dead.Load() { // no change after the kill happens
					return errKilled
				}
				return nil
			}
		}).start()
		answered := map[string]b3.Digest{}
		for i := 0; i < 12 && !dead.Load(); i++ {
			url := fmt.Sprintf("https://%s/%d", h.name, i%4)
			f, err := r.e.Fill(context.Background(), fill.Request{URL: url, Refresh: true})
			if err == nil {
				answered[f.Path] = f.Digest
			}
		}
		dead.Store(true)
		if stray, err := os.Create(filepath.Join(r.dir, "edge", "cas", "tmp", "fill-123")); err != nil ||
			stray.Close() != nil {
			t.Fatal(err)
		}
		r.faults, r.cfg.Mode = nil, config.ModeOffline
		r.reboot()
		r.sound()
		for path, digest := range answered {
			o, err := r.e.Asset(context.Background(), path, "")
			if err == nil && o.Digest != digest {
				t.Errorf("kill %d: %s has %s, answered was %s", n, path, o.Digest, digest)
			}
			if err != nil && !errors.Is(err, asset.ErrNotFound) { // it may have been evicted
				t.Errorf("kill %d: %s: %v", n, path, err)
			}
		}
		r.stop()
	}
}

// An object that one URL leaves while another brings it remains, in any order within a burst.
func TestLeftAndBroughtAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, order := range [][]item{
		{newItem("a", "one"), newItem("b", "zero")},
		{newItem("a", "two"), newItem("b", "one")},
		{newItem("a", "one"), newItem("b", "two"), newItem("a", "three"), newItem("c", "one")},
		{newItem("a", "one"), newItem("a", "two"), newItem("b", "two"), newItem("c", "two")},
	} {
		r.burst(order...)
		r.sound()
		r.stop()
		r.open()
	}
}
