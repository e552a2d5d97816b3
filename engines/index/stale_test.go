package index_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
)

// origin is a peer that signs names with its own key and can be killed.
type origin struct {
	fake
	owner byte
	dead  atomic.Bool

	mu    sync.Mutex
	names map[name.Key]tables.NameRow // guarded by mu while the node runs
}

// put makes a key stand for something, or for nothing with a zero row.
func (o *origin) put(k name.Key, row tables.NameRow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names[k] = row
}

func (o *origin) row(k name.Key) tables.NameRow {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.names[k]
}

func newOrigin(owner byte) *origin {
	o := &origin{owner: owner, names: map[name.Key]tables.NameRow{}}
	o.target = "origin:8443"
	o.fake.name = func(_ context.Context, k name.Key) ([]byte, error) {
		if o.dead.Load() {
			return nil, name.ErrInvalid
		}
		row := o.row(k)
		if row.Seq == 0 {
			return nil, name.ErrNotFound
		}
		return signedName(seedKey(o.owner), k, row.Manifest, row.Seq, time.Now()), nil
	}
	o.fake.providers = func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) {
		if o.dead.Load() {
			return nil, name.ErrInvalid
		}
		return []name.Provider{{Record: signed(seedKey(o.owner), cid, "", time.Now(), 5*time.Minute)}}, nil
	}
	return o
}

func trusting(suffix string, owner byte) func(*rig) {
	return setting(func(c *index.Config) {
		c.Trust = append(c.Trust, suffix+"="+string(name.PeerIDOf(publicOf(seedKey(owner)))))
	})
}

func origins(list ...*origin) func(*rig) {
	return func(r *rig) {
		for _, o := range list {
			r.peers = append(r.peers, o)
		}
	}
}

// A name of another node is accepted only under a trusted key. It is served from the cache within
// its TTL, stale while its node is dead, and not at all once the node answers "not found".
func TestNameOfAPeer(t *testing.T) {
	o := newOrigin(7)
	k, other := key("name:docs.example"), key("name:docs.test")
	o.put(k, tables.NameRow{Manifest: digest("1"), Seq: 1})
	o.put(other, tables.NameRow{Manifest: digest("1"), Seq: 1})
	bubble(t, all(origins(o), trusting("example", 7)), func(r *rig) {
		if a := r.resolve(k.String()); a.Manifest != digest("1") || a.Source != name.SourcePeer || a.Seq != 1 {
			t.Errorf("%+v", a)
		}
		if _, err := r.e.Resolve(r.ctx(), other, name.ResolveOptions{}); !errors.Is(err, name.ErrNotFound) ||
			o.sends.Load() != 1 {
			t.Errorf("nobody is trusted for it: %v after %d sends", err, o.sends.Load())
		}
		r.e.Settle()
		time.Sleep(5 * time.Second)
		if a := r.resolve(k.String()); a.Source != name.SourceCache || a.Age != 5*time.Second || o.sends.Load() != 1 {
			t.Errorf("%+v, %d sends", a, o.sends.Load())
		}
		if _, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{Local: true}); !errors.Is(err, name.ErrNotFound) {
			t.Errorf("hearsay goes to a peer: %v", err)
		}
		o.put(k, tables.NameRow{Manifest: digest("2"), Seq: 2})
		time.Sleep(7 * time.Second)
		if a := r.resolve(k.String()); a.Manifest != digest("2") || a.Source != name.SourcePeer {
			t.Errorf("moved: %+v", a)
		}
		o.dead.Store(true)
		r.e.Settle()
		time.Sleep(12 * time.Second)
		if a := r.resolve(k.String()); a.Manifest != digest("2") || a.Source != name.SourceStale ||
			r.count("index_stale_served_total") != 1 {
			t.Errorf("dead: %+v", a)
		}
		if _, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{Local: true}); !errors.Is(err, name.ErrNotFound) {
			t.Errorf("a stale answer goes to a peer: %v", err)
		}
		o.dead.Store(false)
		o.put(k, tables.NameRow{Deleted: true})
		if _, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{}); !errors.Is(err, name.ErrNotFound) {
			t.Errorf("deleted at its node: %v", err)
		}
		o.dead.Store(true)
		time.Sleep(5 * time.Second)
		if _, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{}); !errors.Is(err, name.ErrUpstream) {
			t.Errorf("a deleted name came back: %v", err)
		}
	})
}

// "Not found" of other peers does not outweigh the silence of the peer that gave the answer.
func TestSilenceIsNotAbsence(t *testing.T) {
	o := newOrigin(7)
	k := key("name:docs.example")
	o.put(k, tables.NameRow{Manifest: digest("1"), Seq: 1})
	others := []*fake{{target: "a:1"}, {target: "b:1"}, {target: "c:1"}}
	bubble(
		t,
		all(origins(o), withPeers(others...), trusting("*", 7), setting(func(c *index.Config) { c.DHT.Alpha = 1 })),
		func(r *rig) {
			if a := r.resolve(k.String()); a.Source != name.SourcePeer {
				t.Errorf("%+v", a)
			}
			r.e.Settle()
			time.Sleep(12 * time.Second)
			o.dead.Store(true)
			if a := r.resolve(k.String()); a.Source != name.SourceStale {
				t.Errorf("failed: %+v", a)
			}
			answers := o.fake.name
			synctest.Wait() // for calls that the lookup has left
			o.fake.name = func(ctx context.Context, _ name.Key) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
			if a := r.resolve(k.String()); a.Source != name.SourceStale {
				t.Errorf("silent: %+v", a)
			}
			synctest.Wait()
			o.fake.name = answers
		},
	)
}

// Records that are forged, signed by a foreign key, for another key, or older than an earlier
// record are refused and counted.
func TestForgedNames(t *testing.T) {
	k := key("name:docs.example")
	now := time.Now
	for what, record := range map[string]func() []byte{
		"foreign key": func() []byte { return signedName(seedKey(8), k, digest("x"), 9, now()) },
		"other key":   func() []byte { return signedName(seedKey(7), key("name:other.example"), digest("x"), 9, now()) },
		"garbage":     func() []byte { return make([]byte, 100) },
		"oversized":   func() []byte { return make([]byte, 1<<20) },
		"expired":     func() []byte { return signedName(seedKey(7), k, digest("x"), 9, now().Add(-time.Hour)) },
		"rolled back": func() []byte { return signedName(seedKey(7), k, digest("x"), 4, now()) },
		"two-faced":   func() []byte { return signedName(seedKey(7), k, digest("x"), 5, now()) },
	} {
		t.Run(what, func(t *testing.T) {
			liar := &fake{name: func(context.Context, name.Key) ([]byte, error) {
				return signedName(seedKey(7), k, digest("true"), 5, now()), nil
			}}
			bubble(t, all(withPeers(liar), trusting("example", 7)), func(r *rig) {
				r.resolve(k.String())
				r.e.Settle()
				time.Sleep(12 * time.Second)
				liar.name = func(context.Context, name.Key) ([]byte, error) { return record(), nil }
				if a := r.resolve(k.String()); a.Manifest != digest("true") || a.Source != name.SourceStale {
					t.Errorf("%+v", a)
				}
				if r.count("index_integrity_fail_total") == 0 || r.count("dht_errors_total", "kind", "invalid") == 0 {
					t.Error("not counted")
				}
			})
		})
	}
}

// A stale answer ends with its signed expiry, with the stale time, or with a write. It is not
// served if stale is off.
func TestStaleEnds(t *testing.T) {
	cid := digest("content")
	warm := func(t *testing.T, change func(*index.Config), body func(r *rig, o *origin)) {
		o := newOrigin(7)
		bubble(t, all(origins(o), setting(change)), func(r *rig) {
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil || set.Source != name.SourcePeer {
				t.Fatalf("%+v, %v", set, err)
			}
			r.e.Settle()
			o.dead.Store(true)
			time.Sleep(15 * time.Second)
			body(r, o)
		})
	}
	t.Run("signed expiry", func(t *testing.T) {
		warm(t, func(*index.Config) {}, func(r *rig, _ *origin) {
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil || set.Source != name.SourceStale {
				t.Errorf("%+v, %v", set, err)
			}
			time.Sleep(285*time.Second + time.Millisecond)
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err == nil {
				t.Errorf("past its expiry: %+v", set)
			}
		})
	})
	t.Run("stale time", func(t *testing.T) {
		warm(t, func(c *index.Config) { c.Cache.StaleMS = 60_000 }, func(r *rig, _ *origin) {
			time.Sleep(45 * time.Second)
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil || set.Source != name.SourceStale {
				t.Errorf("%+v, %v", set, err)
			}
			time.Sleep(12 * time.Second)
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err == nil {
				t.Errorf("past the stale time: %+v", set)
			}
		})
	})
	t.Run("a write", func(t *testing.T) {
		warm(t, func(*index.Config) {}, func(r *rig, _ *origin) {
			out, err := r.e.Announce(r.ctx(), alice,
				[]name.Announcement{{CID: cid, Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}}, "c")
			if err != nil || out[0].Err != nil {
				t.Fatal(out, err)
			}
			if err := r.e.Withdraw(r.ctx(), alice, cid, "", "c"); err != nil {
				t.Fatal(err)
			}
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err == nil {
				t.Errorf("what was before a withdrawal came back: %+v", set)
			}
		})
	})
	t.Run("off", func(t *testing.T) {
		warm(t, func(c *index.Config) { c.Stale = false }, func(r *rig, o *origin) {
			o.fake.providers = hangs
			if _, took, err := r.ask(cid, name.ProvidersOptions{}); !errors.Is(err, name.ErrTimeout) ||
				!near(took, 1200*time.Millisecond) {
				t.Errorf("%v after %v", err, took)
			}
		})
	})
	t.Run("deadline", func(t *testing.T) {
		warm(t, func(*index.Config) {}, func(r *rig, o *origin) {
			o.fake.providers = hangs
			set, took, err := r.ask(cid, name.ProvidersOptions{})
			if err != nil || set.Source != name.SourceStale || !near(took, 1200*time.Millisecond) ||
				r.count("resolve_deadline_hit") != 1 {
				t.Errorf("%+v after %v, %v", set, took, err)
			}
		})
	})
	t.Run("tombstone", func(t *testing.T) {
		o := newOrigin(7)
		k := key("name:docs.example")
		o.put(k, tables.NameRow{Manifest: digest("1"), Seq: 1})
		bubble(t, all(origins(o), trusting("example", 7)), func(r *rig) {
			r.resolve(k.String())
			r.e.Settle()
			r.put(k.String(), digest("own"))
			if err := r.e.DeleteName(r.ctx(), alice, k, "c"); err != nil {
				t.Fatal(err)
			}
			o.dead.Store(true)
			if a, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{}); !errors.Is(err, name.ErrNotFound) {
				t.Errorf("%+v, %v", a, err)
			}
		})
	})
}

// After all peers have died, all cached keys are answered as stale, and all other keys fail.
func TestAllPeersDie(t *testing.T) {
	peers := []*origin{newOrigin(7), newOrigin(8), newOrigin(9)}
	for i, o := range peers {
		o.target = string(rune('a'+i)) + ":8443"
	}
	bubble(t, origins(peers...), func(r *rig) {
		var warm []b3.Digest
		for i := range 100 {
			cid := digest("%d", i)
			if _, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil {
				t.Fatal(err)
			}
			r.e.Settle()
			if r.e.IsPast(name.ProvidersKey(cid), time.Now()) {
				warm = append(warm, cid)
			}
		}
		for _, o := range peers {
			o.dead.Store(true)
		}
		time.Sleep(35 * time.Second) // the window of the breakers forgets earlier successes
		for _, cid := range warm {
			set, _, err := r.ask(cid, name.ProvidersOptions{})
			if err != nil || set.Source != name.SourceStale {
				t.Errorf("%+v, %v", set, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if len(warm) < 90 {
			t.Errorf("%d of 100 were warm", len(warm))
		}
		open := 0
		for _, p := range r.e.Peers() {
			if p.Breaker == "open" {
				open++
			}
		}
		_, _, err := r.ask(digest("cold"), name.ProvidersOptions{})
		if b, ok := errors.AsType[*name.BreakerOpenError](err); open != 3 || !ok || b.RetryAfter <= 0 ||
			b.RetryAfter > 10*time.Second {
			t.Errorf("%d breakers open, cold: %v", open, err)
		}
		if r.e.PeersReady() == nil {
			t.Error("the probe says that a peer may be asked")
		}
		for _, o := range peers {
			o.dead.Store(false)
		}
		time.Sleep(25 * time.Second) // cooldown, and the probes of the prefetcher
		synctest.Wait()
		for _, p := range r.e.Peers() {
			if p.Breaker != "closed" {
				t.Errorf("%+v", p)
			}
		}
		if set, _, err := r.ask(warm[0], name.ProvidersOptions{}); err != nil || set.Source != name.SourcePeer {
			t.Errorf("alive again: %+v, %v", set, err)
		}
	})
}
