package index_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/index/name"
)

// A name is read after it was put, changed and deleted, with and without the cache.
func TestNamesLife(t *testing.T) {
	for _, inline := range []bool{true, false} {
		r := newRig(t, func(r *rig) { r.cfg.InlineHits, r.cfg.DHT.DeadlineMS = inline, 5000 }).start()
		m1, m2 := digest("1"), digest("2")
		if n, created, err := r.e.PutName(r.ctx(), alice, key("name:docs.example"), m1, "c"); err != nil || !created ||
			n.Seq != 1 {
			t.Fatalf("put: %+v, %t, %v", n, created, err)
		}
		if a := r.resolve("name:docs.example"); a.Manifest != m1 || a.Source != name.SourceLocal ||
			a.ETag != `"`+m1.String()+`"` {
			t.Errorf("first: %+v", a)
		}
		if n, created, err := r.e.PutName(r.ctx(), alice, key("name:docs.example"), m2, "c"); err != nil || created ||
			n.Seq != 2 {
			t.Fatalf("move: %+v, %t, %v", n, created, err)
		}
		if a := r.resolve("name:docs.example"); a.Manifest != m2 {
			t.Errorf("moved: %+v", a)
		}
		if err := r.e.DeleteName(r.ctx(), alice, key("name:docs.example"), "c"); err != nil {
			t.Fatal(err)
		}
		for _, o := range []name.ResolveOptions{{}, {Fresh: true}, {Local: true}} {
			if _, err := r.e.Resolve(r.ctx(), key("name:docs.example"), o); !errors.Is(err, name.ErrNotFound) {
				t.Errorf("deleted, %+v: %v", o, err)
			}
		}
		if err := r.e.DeleteName(r.ctx(), alice, key("name:docs.example"), "c"); !errors.Is(err, name.ErrNotFound) {
			t.Errorf("deleted again: %v", err)
		}
		if n := r.put("name:docs.example", m1); n.Seq != 4 {
			t.Errorf("seq does not survive: %+v", n)
		}
		r.stop()
	}
}

// A version is written once, even after it was deleted. Putting the same manifest again is a no-op.
func TestVersionIsWriteOnce(t *testing.T) {
	r := newRig(t, patient).start()
	k := "name:docs.example@1.0.0"
	r.put(k, digest("1"))
	if n := r.put(k, digest("1")); n.Seq != 1 {
		t.Errorf("put again: %+v", n)
	}
	_, _, err := r.e.PutName(r.ctx(), alice, key(k), digest("2"), "c")
	if c, ok := errors.AsType[*name.ConflictError](err); !ok || c.Has != digest("1") {
		t.Errorf("another manifest: %v", err)
	}
	if err := r.e.DeleteName(r.ctx(), alice, key(k), "c"); err != nil {
		t.Fatal(err)
	}
	if _, _, err = r.e.PutName(r.ctx(), alice, key(k), digest("2"), "c"); err == nil {
		t.Error("a deleted version took another manifest")
	}
	r.put(k, digest("1"))
}

// Providers are stored signed, ranked and withdrawn. Expired ones disappear from answers at once,
// and from the file by the janitor.
func TestProvidersLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil).start()
		cid, now := digest("content"), time.Now()
		list := []name.Announcement{
			{Record: signed(seedKey(2), cid, "eu-west-1", now, time.Hour)},
			{Record: signed(seedKey(3), cid, "eu-west-3", now, time.Minute)},
			{CID: cid, Addrs: []string{"/dns4/box.example/tcp/443/https"}, Region: "us-east-1", TTL: 2 * time.Hour},
			{Record: append(signed(seedKey(4), cid, "", now, time.Hour), 0)},
		}
		out, err := r.e.Announce(r.ctx(), alice, list, "c")
		if err != nil || out[0].Err != nil || out[1].Err != nil || out[2].Err != nil || out[3].Err == nil {
			t.Fatalf("announce: %+v, %v", out, err)
		}
		get := func(o name.ProvidersOptions) []name.PeerID {
			set, err := r.e.Providers(r.ctx(), cid, o)
			if err != nil && !errors.Is(err, name.ErrNotFound) {
				t.Fatal(err)
			}
			var ids []name.PeerID
			for _, p := range set.Providers {
				if !p.Verified {
					t.Errorf("%s is not verified", p.Peer)
				}
				ids = append(ids, p.Peer)
			}
			return ids
		}
		two := name.PeerIDOf(publicOf(seedKey(2)))
		three := name.PeerIDOf(publicOf(seedKey(3)))
		self := name.PeerIDOf(publicOf(own))
		if got := get(name.ProvidersOptions{Region: "eu-west-3"}); len(got) != 3 || got[0] != three || got[1] != two ||
			got[2] != self {
			t.Errorf("ranked: %v", got)
		}
		if got := get(name.ProvidersOptions{Region: "us-east-1", Limit: 1}); len(got) != 1 || got[0] != self {
			t.Errorf("limit: %v", got)
		}
		if err := r.e.Withdraw(r.ctx(), alice, cid, two, "c"); err != nil {
			t.Fatal(err)
		}
		if got := get(name.ProvidersOptions{}); len(got) != 2 {
			t.Errorf("withdrawn: %v", got)
		}
		time.Sleep(time.Minute)
		if got := get(name.ProvidersOptions{}); len(got) != 1 || got[0] != self {
			t.Errorf("expired: %v", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := r.rows(); n != 1 {
			t.Errorf("%d records are in the file", n)
		}
		if err := r.e.Withdraw(r.ctx(), alice, cid, "", "c"); err != nil {
			t.Fatal(err)
		}
		if got := get(name.ProvidersOptions{}); got != nil {
			t.Errorf("nobody is left, but %v", got)
		}
		r.stop()
	})
}
