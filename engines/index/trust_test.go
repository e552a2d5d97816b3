package index_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
)

// A peer with a hundred self-signed records that are dated ahead does not fill an answer: eight are
// taken, those of this node's file come first, and no date in the future raises a rank. The cached
// entry obeys the same rules.
func TestOnePeerDoesNotFillAnAnswer(t *testing.T) {
	cid := digest("content")
	liar := &fake{providers: func(context.Context, b3.Digest) (out []name.Provider, _ error) {
		for i := range 100 {
			out = append(
				out,
				name.Provider{
					Record: signed(seedKey(byte(i+100)), cid, "eu-west-3", time.Now().Add(4*time.Minute), time.Hour),
				},
			)
		}
		return out, nil
	}}
	bubble(t, withPeers(liar), func(r *rig) {
		r.announce(cid)
		time.Sleep(time.Second)
		ahead := signed(seedKey(2), cid, "", time.Now().Add(4*time.Minute), time.Hour)
		if done, err := r.e.Announce(r.ctx(), alice, []name.Announcement{{Record: ahead}}, "c"); err != nil ||
			done[0].Err != nil {
			t.Fatalf("%+v, %v", done, err)
		}
		for _, fresh := range []bool{true, false} {
			set, _, err := r.ask(cid, name.ProvidersOptions{Fresh: fresh, Region: "eu-west-3"})
			if err != nil || len(set.Providers) != 2+name.MaxHeard {
				t.Fatalf("%d providers, %v", len(set.Providers), err)
			}
			for i, p := range set.Providers {
				if p.Filed != (i < 2) || p.AtMS > time.Now().UnixMilli() {
					t.Errorf("%d.: filed %t, signed %v from now", i, p.Filed, time.Until(time.UnixMilli(p.AtMS)))
				}
			}
			r.e.Settle()
		}
	})
}

// Two nodes that are trusted for one name and disagree are a conflict, which is reported and counts
// against neither. Each has a seq of its own, and a record with a lower seq of the same node is
// refused.
func TestTwoTrustedNodesWithOneName(t *testing.T) {
	k := key("name:docs.example")
	one, two := newOrigin(7), newOrigin(8)
	two.target = "second:8443"
	one.put(k, tables.NameRow{Manifest: digest("1"), Seq: 5})
	bubble(t, all(origins(one, two), trusting("example", 7), trusting("example", 8)), func(r *rig) {
		if a := r.resolve(k.String()); a.Manifest != digest("1") || !a.Conflict.IsZero() {
			t.Errorf("%+v", a)
		}
		swap := func(from, to *origin, m b3.Digest, seq uint64) name.Answer {
			from.put(k, tables.NameRow{})
			to.put(k, tables.NameRow{Manifest: m, Seq: seq})
			r.e.Settle()
			time.Sleep(12 * time.Second)
			return r.resolve(k.String())
		}
		for i := range 20 {
			if a := swap(one, two, digest("2"), 3); a.Manifest != digest("2") || a.Source != name.SourcePeer ||
				a.Conflict != digest("1") {
				t.Fatalf("%d: %+v", i, a)
			}
			if a := swap(two, one, digest("1"), 5); a.Manifest != digest("1") || a.Source != name.SourcePeer ||
				a.Conflict != digest("2") {
				t.Fatalf("%d: %+v", i, a)
			}
		}
		if r.count("index_name_conflicts_total") != 1 || r.count("index_integrity_fail_total") != 0 {
			t.Errorf("%v conflicts, %v faults", r.count("index_name_conflicts_total"),
				r.count("index_integrity_fail_total"))
		}
		for _, p := range r.e.Peers() {
			if p.Failed != 0 || p.Breaker != "closed" {
				t.Errorf("%+v", p)
			}
		}
		if a := swap(one, two, digest("3"), 2); a.Source != name.SourceStale || a.Manifest != digest("1") {
			t.Errorf("the second fell back: %+v", a)
		}
	})
}

// A removed key hides the name of a peer until it is forgotten. A forgotten version may be put
// again.
func TestForgetShowsNamesOfPeers(t *testing.T) {
	k, version := key("name:docs.example"), key("name:docs.example@1.0.0")
	o := newOrigin(7)
	o.put(k, tables.NameRow{Manifest: digest("theirs"), Seq: 1})
	bubble(t, all(origins(o), trusting("example", 7)), func(r *rig) {
		r.put(k.String(), digest("ours"))
		r.put(version.String(), digest("ours"))
		for _, one := range []name.Key{k, version} {
			if err := r.e.DeleteName(r.ctx(), alice, one, "c"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{}); !errors.Is(err, name.ErrNotFound) {
			t.Errorf("removed: %v", err)
		}
		for _, one := range []name.Key{k, version} {
			if err := r.e.ForgetName(r.ctx(), alice, one, "c"); err != nil {
				t.Fatal(err)
			}
			if err := r.e.ForgetName(r.ctx(), alice, one, "c"); !errors.Is(err, name.ErrNotFound) {
				t.Errorf("again: %v", err)
			}
		}
		if a := r.resolve(k.String()); a.Manifest != digest("theirs") || a.Source != name.SourcePeer {
			t.Errorf("forgotten: %+v", a)
		}
		if n := r.put(version.String(), digest("other")); n.Seq != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// Writes of other keys do not outdate an answer.
func TestWritesOutdateTheirOwnKeyAlone(t *testing.T) {
	k := key("name:docs.example")
	o := newOrigin(7)
	o.put(k, tables.NameRow{Manifest: digest("1"), Seq: 1})
	bubble(t, all(origins(o), trusting("example", 7)), func(r *rig) {
		for i := range 50 {
			o.put(key(coldKey(i)), tables.NameRow{Manifest: digest("1"), Seq: 1})
			r.resolve(coldKey(i))
		}
		r.e.Settle()
		for i := range 200_000 {
			r.e.Outdate(coldKey(1000 + i))
		}
		for i := range 50 {
			if a := r.resolve(coldKey(i)); a.Source != name.SourceCache {
				t.Fatalf("%d: %+v", i, a)
			}
		}
	})
}
