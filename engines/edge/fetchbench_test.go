package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/sites"
)

// BenchmarkSiteOf500 compares the first fetch of 500 files of a site from another node with a fill
// of the same files from a host. Both are asked for 8 files at once, on loopback.
func BenchmarkSiteOf500(b *testing.B) {
	const files, atOnce = 500, 8
	bodies := make([]string, files)
	for i := range bodies {
		bodies[i] = edgetest.Loud(fmt.Sprint("file ", i), 1000+i*137)
	}
	each := func(b *testing.B, one func(i int) error) {
		b.Helper()
		var wg sync.WaitGroup
		for w := range atOnce {
			wg.Go(func() {
				for i := w; i < files; i += atOnce {
					if err := one(i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	b.Run("fill", func(b *testing.B) {
		h := newHost(b, func(w http.ResponseWriter, q *http.Request) {
			var i int
			_, _ = fmt.Sscanf(q.URL.Path, "/%d", &i)
			serve(w, bodies[i])
		})
		for b.Loop() {
			b.StopTimer()
			r := newRig(b, on(h, func(c *config.Config) { c.Ingress.RPSLimit = 1_000_000 })).start()
			b.StartTimer()
			each(b, func(i int) error {
				_, err := r.e.Fill(b.Context(), fill.Request{URL: fmt.Sprintf("https://%s/%d", h.name, i)})
				return err
			})
			b.StopTimer()
			r.stop()
			b.StartTimer()
		}
	})
	b.Run("fetch", func(b *testing.B) {
		a := edgetest.NewStation(b, "a", bodies...)
		root := a.Adds(b, bodies...)
		index := edgetest.NewIndex()
		index.Set("docs.example", sites.Named{Manifest: root, Owner: a.Identity})
		for b.Loop() {
			b.StopTimer()
			r := newRig(b, inFleet(func(r *rig) { r.names, r.cfg.Ingress.RPSLimit = index, 1_000_000 })).start()
			r.setFleet(edgetest.View(1, a))
			b.StartTimer()
			each(b, func(i int) error {
				f, err := r.e.Site(b.Context(), sites.Request{Name: "docs.example", Path: fmt.Sprintf("f%03d.txt", i)})
				if err != nil {
					return err
				}
				defer f.Close()
				if f.File != nil {
					_, err = io.Copy(io.Discard, f.File)
				}
				return err
			})
			b.StopTimer()
			if has, err := r.e.Content().Has(b.Context(), b3.Sum([]byte(bodies[7]))); !has || err != nil {
				b.Errorf("not stored: %v", err)
			}
			r.stop()
			b.StartTimer()
		}
	})
}
