package index_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// BenchmarkHit resolves a key from the cache.
func BenchmarkHit(b *testing.B) {
	r := newRig(b, nil).start()
	k := key("name:docs.example")
	next := r.cfg
	next.Cache.TTLMS = 3_600_000
	r.e.Reload(next)
	r.put(k.String(), digest("1"))
	r.resolve(k.String())
	r.e.Settle()
	ctx := r.ctx()
	b.ReportAllocs()
	for b.Loop() {
		if a, err := r.e.Resolve(ctx, k, name.ResolveOptions{}); err != nil || a.Source != name.SourceCache {
			b.Fatal(a, err)
		}
	}
}

// BenchmarkHitParallel is BenchmarkHit on all processors.
func BenchmarkHitParallel(b *testing.B) {
	r := newRig(b, nil).start()
	k := key("name:docs.example")
	next := r.cfg
	next.Cache.TTLMS = 3_600_000
	r.e.Reload(next)
	r.put(k.String(), digest("1"))
	r.resolve(k.String())
	r.e.Settle()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHitProviders ranks a set of 64 providers from the cache for a region.
func BenchmarkHitProviders(b *testing.B) {
	r := newRig(b, nil).start()
	cid := digest("content")
	var list []name.Announcement
	for i := range 64 {
		list = append(
			list,
			name.Announcement{
				Record: signed(seedKey(byte(i+2)), cid, []string{"eu-west-1", "eu-west-3", "us-east-1"}[i%3],
					time.Now(), time.Hour),
			},
		)
	}
	if _, err := r.e.Announce(r.ctx(), alice, list, "c"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if set, err := r.e.Providers(r.ctx(), cid, name.ProvidersOptions{Region: "eu-west-3", Limit: 5}); err != nil ||
			len(set.Providers) != 5 {
			b.Fatal(set, err)
		}
	}
}

// coldNames returns the number of names of the cold benchmarks; -short uses fewer.
func coldNames() int {
	if testing.Short() {
		return 10_000
	}
	return 1_000_000
}

func coldKey(i int) string { return fmt.Sprintf("name:n%08d.example", i*7919%100_000_000) }

// loaded is a command that writes a range of names in the order of their keys.
type loaded struct{ from, to int }

func (loaded) Kind() string { return "index.bench_load/1" }
func (c loaded) Apply(_ store.Reader, at store.Stamp, w *store.Writes) (int, error) {
	for i := c.from; i < c.to; i++ {
		tables.Names.Put(w, coldKey(i), tables.NameRow{Manifest: digest("%d", i), Seq: 1, UpdatedMS: 1, Commit: at.Seq})
	}
	return c.to - c.from, nil
}

// BenchmarkCold resolves keys of the file that are not cached, compared with the bare read and with
// bbolt.
func BenchmarkCold(b *testing.B) {
	r := newRig(b, onDisk(b)).start()
	n := coldNames()
	for i := 0; i < n; i += 10_000 {
		if _, err := store.Commit(r.ctx(), r.store, store.Bulk, loaded{i, min(i+10_000, n)}); err != nil {
			b.Fatal(err)
		}
	}
	r.put("name:last.example", digest("last")) // all before it counts as synced
	i := 0
	next := func() name.Key { i = (i + 7_368_787) % n; return key(coldKey(i)) }
	b.Run("resolve", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.e.Resolve(r.ctx(), next(), name.ResolveOptions{Fresh: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.e.Name(r.ctx(), next()); err != nil {
				b.Fatal(err)
			}
		}
	})
	r.stop()
	db, err := bbolt.Open(r.path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	b.Run("bbolt", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			k := []byte(next().String())
			err := db.View(func(tx *bbolt.Tx) error {
				if tx.Bucket([]byte(tables.NameBucket.Name)).Get(k) == nil {
					return fmt.Errorf("%s is not in %s", k, filepath.Base(r.path))
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
