package index_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

var trustedOwn = []ed25519.PublicKey{publicOf(own)}

// renewEvery is the time between two renewals of a kept record.
const renewEvery = time.Hour

// kept returns the keys of the rows of index/held.
func (r *rig) kept() (keys []string) {
	r.t.Helper()
	synctest.Wait() // for the renewer
	err := r.store.View(r.ctx(), func(rd store.Reader) error {
		keys = nil
		for k := range rd.Range(tables.HeldBucket, nil, nil) {
			keys = append(keys, string(k))
		}
		return tables.CheckRows(rd)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return keys
}

// The record of an owner is kept, served to clients while the owner does not answer and to nodes
// that ask, exactly as the owner signed it, and not beyond its expiry.
func TestKeptRecord(t *testing.T) {
	a, b := newMember("a", 2, "a.example"), newMember("b", 3)
	a.row.Store(&tables.NameRow{Manifest: digest("1"), Seq: 5})
	bubble(t, inFleet, func(r *rig) {
		r.setFleet(self(), a, b)
		local := func() (name.Answer, error) { return r.e.Resolve(r.ctx(), docs, name.ResolveOptions{Local: true}) }
		if _, err := local(); !errors.Is(err, name.ErrNotFound) {
			t.Fatalf("before a lookup: err = %v", err)
		}
		r.resolve(docs.String())
		if got := r.kept(); !slices.Equal(got, []string{docs.String()}) {
			t.Fatalf("kept %q", got)
		}
		a.dead.Store(true)
		r.e.Purge()
		if got := r.resolve(docs.String()); got.Manifest != digest("1") || got.Seq != 5 || got.Source != name.SourcePeer {
			t.Errorf("owner dead: %+v", got)
		}
		got, err := local()
		if err != nil {
			t.Fatal(err)
		}
		n, signer, err := name.ParseNameRecord(got.Record, docs, []ed25519.PublicKey{publicOf(seedKey(2))}, time.Now())
		if err != nil || n.Seq != 5 || !bytes.Equal(signer, publicOf(seedKey(2))) {
			t.Errorf("for a node: %+v, %v", n, err)
		}
		r.ahead.Store(int64(siteTTL))
		if got, err := r.e.Resolve(r.ctx(), docs, name.ResolveOptions{}); err == nil {
			t.Errorf("after its expiry: %+v", got)
		}
		if _, err := local(); err == nil {
			t.Error("after its expiry it is served to nodes")
		}
		time.Sleep(renewEvery)
		if got := r.kept(); len(got) != 0 {
			t.Errorf("after its expiry %q is kept", got)
		}
	})
}

// Kept records are renewed every hour at their owners, without any lookup, and dropped once the
// owner has no such name.
func TestKeptRecordsAreRenewed(t *testing.T) {
	a, b := newMember("a", 2, "a.example"), newMember("b", 3)
	a.row.Store(&tables.NameRow{Manifest: digest("1"), Seq: 5})
	bubble(t, inFleet, func(r *rig) {
		r.setFleet(self(), a, b)
		r.resolve(docs.String())
		time.Sleep(2 * renewEvery)
		a.row.Store(&tables.NameRow{Manifest: digest("2"), Seq: 6})
		time.Sleep(renewEvery + time.Minute)
		if asked := a.sends.Load(); asked != 4 {
			t.Errorf("the owner was asked %d times in three hours, want 4", asked)
		}
		a.dead.Store(true)
		r.ahead.Store(int64(siteTTL - time.Hour)) // past the expiry of the first record
		if got := r.resolve(docs.String()); got.Manifest != digest("2") {
			t.Errorf("%+v", got)
		}
		if n := b.sends.Load(); n > 2 { // the lookup above; a renewal asks the owner alone
			t.Errorf("another node was asked %d times", n)
		}
		a.dead.Store(false)
		a.row.Store(nil)
		r.ahead.Store(0)
		time.Sleep(renewEvery)
		if got := r.kept(); len(got) != 0 {
			t.Errorf("%q is kept although its owner has no such name", got)
		}
	})
}

// An older record of the owner than the kept one is refused, whichever node serves it, also after a
// restart.
func TestOlderRecordIsRefused(t *testing.T) {
	a, b := newMember("a", 2, "a.example"), newMember("b", 3)
	a.row.Store(&tables.NameRow{Manifest: digest("new"), Seq: 6})
	bubble(t, inFleet, func(r *rig) {
		r.setFleet(self(), a, b)
		r.resolve(docs.String())
		r.kept()
		r.e.Purge() // as after a restart
		a.dead.Store(true)
		old := siteRecord(2, docs, digest("old"), 5)
		b.held.Store(&old)
		if got := r.resolve(docs.String()); got.Manifest != digest("new") {
			t.Errorf("%+v, want the kept one", got)
		}
		a.dead.Store(false)
		a.row.Store(&tables.NameRow{Manifest: digest("fork"), Seq: 6})
		r.e.Purge()
		time.Sleep(time.Minute)
		if got := r.resolve(docs.String()); got.Manifest != digest("new") {
			t.Errorf("another manifest with the same seq: %+v", got)
		}
	})
}

// A kept record outlives a restart of the node. A damaged row counts as none.
func TestKeptRecordAfterRestart(t *testing.T) {
	a := newMember("a", 2, "a.example")
	a.row.Store(&tables.NameRow{Manifest: digest("1"), Seq: 5})
	r := newRig(t, all(inFleet, onDisk(t), patient)).start()
	r.setFleet(self(), a)
	r.resolve(docs.String())
	r.waitKept(1)
	r.stop()
	a.dead.Store(true)
	r.open()
	r.start()
	r.setFleet(self(), a)
	if got := r.resolve(docs.String()); got.Manifest != digest("1") {
		t.Errorf("%+v", got)
	}
	row := r.row(tables.HeldBucket, docs.String())
	r.rewrite(rewrite{row, row.flip(9, false)})
	r.e.Purge()
	if got, err := r.e.Resolve(r.ctx(), docs, name.ResolveOptions{}); err == nil {
		t.Errorf("out of a damaged row: %+v", got)
	}
	a.dead.Store(false)
	if got := r.resolve(docs.String()); got.Manifest != digest("1") {
		t.Errorf("%+v", got)
	}
}

// waitKept waits until the renewer has kept n records.
func (r *rig) waitKept(n int) {
	for got := -1; got != n; {
		if err := r.store.View(r.ctx(), func(rd store.Reader) error {
			got = 0
			for range rd.Range(tables.HeldBucket, nil, nil) {
				got++
			}
			return nil
		}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Stored reads this node's file alone, also before Recover: the row of a name, or the kept record of
// its owner while that is valid.
func TestStored(t *testing.T) {
	a := newMember("a", 2, "a.example")
	a.row.Store(&tables.NameRow{Manifest: digest("1"), Seq: 5})
	bubble(t, inFleet, func(r *rig) {
		r.setFleet(self(), a)
		r.put("name:own.example", digest("own"))
		r.put("name:gone.example", digest("gone"))
		if err := r.e.DeleteName(r.ctx(), alice, key("name:gone.example"), ""); err != nil {
			t.Fatal(err)
		}
		r.resolve(docs.String())
		if got := r.kept(); !slices.Equal(got, []string{docs.String()}) {
			t.Fatalf("kept %q", got)
		}
		for text, want := range map[string]b3.Digest{
			docs.String(): digest("1"), "name:own.example": digest("own"), "name:gone.example": {}, "name:none.example": {},
		} {
			got, err := r.e.Stored(r.ctx(), key(text))
			if got != want && !want.IsZero() || want.IsZero() != errors.Is(err, name.ErrNotFound) {
				t.Errorf("%s: %s, %v", text, got, err)
			}
		}
		r.ahead.Store(int64(siteTTL))
		if got, err := r.e.Stored(r.ctx(), docs); !errors.Is(err, name.ErrNotFound) {
			t.Errorf("an expired record: %s, %v", got, err)
		}
	})
}
