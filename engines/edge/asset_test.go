package edge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/fill"
)

// A large object is served from a file; a truncated one is fetched again.
func TestLargeObject(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, hotObject+1)
	o := r.want(h.name+"/x", body("x"))
	if o.File == nil || o.Bytes != nil || o.From != asset.FromCAS {
		t.Errorf("%v of %s", o.File, o.From)
	}
	if err := errors.Join(os.Chmod(r.file(o.Digest), 0o600), os.Truncate(r.file(o.Digest), 5)); err != nil {
		t.Fatal(err)
	}
	if o := r.want(h.name+"/x", body("x")); !o.Filled {
		t.Error("served without a fill")
	}
	r.sound()
}

// A request for an object with a noted use writes nothing to the disk, for objects of any size.
func TestUseIsNotedOnce(t *testing.T) {
	t.Parallel()
	for doc, size := range map[string]int{"small": 100, "large": hotObject + 1} {
		r, h, body := newSizedRig(t, size)
		o := r.want(h.name+"/x", body("x"))
		noted := func() time.Time { return r.e.Content().Dir().Used(o.Digest) }
		first := noted()
		until(t, "its use is known", func() bool {
			before := first
			r.clock.Add(int64(time.Hour))
			r.want(h.name+"/x", body("x"))
			first = noted()
			return first.Equal(before)
		})
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

// A refreshed object is served under its path and its other names as soon as its fill is answered,
// even with concurrent readers.
func TestMemoryIsNeverOlderThanTheRows(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	h := newHost(t, func(w http.ResponseWriter, _ *http.Request) { serve(w, fmt.Sprint("edition ", n.Load())) })
	r := newRig(t, on(h)).start()
	path, over := h.name+"/x", make(chan struct{})
	r.want(path, "edition 0")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, _, err := r.read(path); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	last := r.want(path, "edition 0")
	laps := 30
	if testing.Short() {
		laps = 6
	}
	for i := range laps {
		body := fmt.Sprint("edition ", n.Add(1))
		f, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + path, Refresh: true})
		if err != nil || f.Digest != b3.Sum([]byte(body)) {
			t.Fatalf("%d: %+v, %v", i, f, err)
		}
		r.want(path, body)
		r.refused("b3/"+last.Digest.String()[3:], asset.ErrNotFound)
		last = r.want("b3/"+f.Digest.String()[3:], body)
	}
	close(over)
	all.Wait()
	r.sound()
}

// BenchmarkWarmAsset measures an asset in memory, without HTTP.
func BenchmarkWarmAsset(b *testing.B) {
	h := newHost(b, echo)
	r := newRig(b, on(h)).start()
	path := h.name + "/fonts/a.ttf"
	until(b, "it is in memory", func() bool { return r.want(path, "of fonts/a.ttf").From == asset.FromHot })
	b.ReportAllocs()
	for b.Loop() {
		o, err := r.e.Asset(b.Context(), path, "")
		if err != nil || o.ETag() == "" {
			b.Fatal(err)
		}
		o.Close()
	}
}
