package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/fleet"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
	"ronbox/engines/index/records"
	"ronbox/engines/index/tables"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// member is a node of a fleet: a peer that signs its names for siteTTL, and may hold records of
// others.
type member struct {
	fake
	id    string // of its item
	key   byte
	slow  time.Duration
	names []string // name suffixes

	dead atomic.Bool
	row  atomic.Pointer[tables.NameRow] // of every name it is asked for; nil: "not found"
	held atomic.Pointer[[]byte]         // served before row
}

func newMember(id string, key byte, names ...string) *member {
	m := &member{id: "node/" + id, key: key, names: names}
	m.target = id + ":8443"
	m.fake.name = func(ctx context.Context, k name.Key) ([]byte, error) {
		if err := wait(ctx, m.slow); err != nil {
			return nil, err
		}
		raw, row := m.held.Load(), m.row.Load()
		switch {
		case m.dead.Load():
			return nil, fmt.Errorf("dead: %w", name.ErrTransient)
		case raw != nil:
			return *raw, nil
		case row != nil:
			return siteRecord(m.key, k, row.Manifest, row.Seq), nil
		}
		return nil, name.ErrNotFound
	}
	return m
}

// siteRecord is the record of a name by its owner, for siteTTL from now.
func siteRecord(key byte, k name.Key, manifest b3.Digest, seq uint64) []byte {
	n := name.NameRecord{
		Key: k, Manifest: manifest, Seq: seq, UpdatedMS: time.Now().UnixMilli(),
		ExpiresMS: time.Now().Add(siteTTL).UnixMilli(),
	}
	raw, err := n.Sign(seedKey(key))
	if err != nil {
		panic(err)
	}
	return raw
}

// item is the descriptor of the member.
func (m *member) item(t testing.TB) record.Item {
	var names []string
	for _, n := range m.names {
		names = append(names, fmt.Sprintf("%q", n))
	}
	it, err := record.ParseItem(fmt.Appendf(nil, `{"id":%q,"kind":"node","endpoint":"https://%s","meta":{"identity":%q,`+
		`"services":["index"],"names":[%s]}}`, m.id, m.target, name.PeerIDOf(publicOf(seedKey(m.key))),
		strings.Join(names, ",")))
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// setFleet makes the members the fleet of the node, of which one may be the node itself, with key 1.
func (r *rig) setFleet(members ...*member) {
	var items []record.Item
	var nodes []peers.Node
	for _, m := range members {
		items = append(items, m.item(r.t))
		if m.key != 1 {
			nodes = append(nodes, peers.Node{ID: m.id, Peer: m})
		}
	}
	v := fleet.New(1, b3.Digest{}, "node/self", slices.Values(items))
	if len(v.Faults) > 0 {
		r.t.Fatalf("faults: %+v", v.Faults)
	}
	r.e.SetFleet(v, nodes)
}

func inFleet(r *rig) { r.fleet = true }

func self(names ...string) *member { return newMember("self", 1, names...) }

var docs = key("name:docs.a.example")

// Peers of the fleet come and go with its view. Those that stay keep their breakers and counters,
// and those that are gone leave no series.
func TestPeersThatStayKeepTheirBreakers(t *testing.T) {
	conf := &fake{target: "conf:8443"}
	a, b, c := newMember("a", 2, "a.example"), newMember("b", 3), newMember("c", 4)
	a.dead.Store(true)
	change := all(inFleet, withPeers(conf), setting(func(c *index.Config) { c.Breaker.MinSamples = 1 }))
	bubble(t, change, func(r *rig) {
		r.setFleet(self(), a, b)
		for range 5 {
			_, _ = r.e.Resolve(r.ctx(), docs, name.ResolveOptions{})
		}
		time.Sleep(time.Second) // the janitor steps the breaker
		synctest.Wait()
		before := r.e.Peers()
		if before[1].Target != a.target || before[1].Node != a.id || before[1].Breaker != "open" || before[1].Failed == 0 {
			t.Fatalf("%+v", before)
		}
		r.setFleet(self(), a, c)
		got := r.e.Peers()
		if len(got) != 3 || got[0].Target != conf.target || got[0].Node != "" || got[2].Target != c.target {
			t.Fatalf("%+v", got)
		}
		if got[1].Breaker != "open" || got[1].Asked != before[1].Asked || got[1].Failed != before[1].Failed {
			t.Errorf("%+v, was %+v", got[1], before[1])
		}
		if r.count("breaker_state", "target", c.target, "state", "closed") != 1 {
			t.Error("the new peer has no series")
		}
		families, err := r.metrics.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "breaker_") && strings.Contains(f.String(), b.target) {
				t.Errorf("%s has a series of the peer that is gone", f.GetName())
			}
		}
		cid := digest("x")
		if _, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil && !errors.Is(err, name.ErrNotFound) {
			t.Error(err)
		}
		if b.sends.Load() != 0 && c.sends.Load() == 0 {
			t.Errorf("b was asked %d times, c %d times", b.sends.Load(), c.sends.Load())
		}
		r.e.SetFleet(nil, nil)
		if got := r.e.Peers(); len(got) != 1 || got[0].Target != conf.target {
			t.Errorf("without a fleet: %+v", got)
		}
	})
}

// A node that is signed in is asked by the next lookup.
func TestFourthNodeIsAsked(t *testing.T) {
	a, b, d := newMember("a", 2), newMember("b", 3), newMember("d", 5, "d.example")
	d.row.Store(&tables.NameRow{Manifest: digest("d"), Seq: 1})
	bubble(t, inFleet, func(r *rig) {
		www := "name:www.d.example"
		r.setFleet(self(), a, b)
		if _, err := r.e.Resolve(r.ctx(), key(www), name.ResolveOptions{}); !errors.Is(err, name.ErrNotFound) {
			t.Fatal(err)
		}
		r.setFleet(self(), a, b, d) // the cached "not found" ends with the view
		if got := r.resolve(www); got.Manifest != digest("d") || got.Source != name.SourcePeer {
			t.Errorf("%+v", got)
		}
		if a.sends.Load()+b.sends.Load() != 0 {
			t.Error("others were asked beside the owner")
		}
	})
}

// Of forty nodes, the owner of each name is found with one call.
func TestNamesOfFortyNodes(t *testing.T) {
	members := []*member{self("self.example")}
	for i := range 40 {
		m := newMember(fmt.Sprintf("n%02d", i), byte(i+2), fmt.Sprintf("n%02d.example", i))
		m.row.Store(&tables.NameRow{Manifest: digest("%d", i), Seq: 1})
		members = append(members, m)
	}
	bubble(t, inFleet, func(r *rig) {
		r.setFleet(members...)
		for i, m := range members[1:] {
			got := r.resolve("name:www." + m.names[0])
			if got.Manifest != digest("%d", i) || m.sends.Load() != 1 {
				t.Errorf("%s: %+v, asked %d times", m.id, got, m.sends.Load())
			}
		}
	})
}

// The owner of a name is asked first, and others only if it does not answer in time: they may hold
// an older record.
func TestOwnerIsAskedFirst(t *testing.T) {
	for _, tt := range []struct {
		slow time.Duration
		want string
	}{{100 * time.Millisecond, "new"}, {300 * time.Millisecond, "old"}} {
		a, b, c := newMember("a", 2, "a.example"), newMember("b", 3), newMember("c", 4)
		a.slow = tt.slow
		bubble(t, inFleet, func(r *rig) {
			old := siteRecord(2, docs, digest("old"), 4)
			b.held.Store(&old)
			a.row.Store(&tables.NameRow{Manifest: digest("new"), Seq: 5})
			r.setFleet(self(), a, b, c)
			if got := r.resolve(docs.String()); got.Manifest != digest("%s", tt.want) {
				t.Errorf("owner after %v: %+v, want %s", tt.slow, got, tt.want)
			}
		})
	}
}

// "Not found" by the owner is final, whatever others hold. The failure of the owner is no "not
// found".
func TestOwnerSaysNo(t *testing.T) {
	a, b := newMember("a", 2, "a.example"), newMember("b", 3)
	bubble(t, inFleet, func(r *rig) {
		old := siteRecord(2, docs, digest("old"), 4)
		b.held.Store(&old)
		r.setFleet(self(), a, b)
		var silent *name.SilentError
		if _, err := r.e.Resolve(r.ctx(), docs, name.ResolveOptions{}); !errors.Is(err, name.ErrNotFound) ||
			errors.As(err, &silent) {
			t.Errorf("err = %v, want the owner's not found", err)
		}
		if b.sends.Load() != 0 {
			t.Error("another node was asked")
		}
		a.dead.Store(true)
		b.held.Store(nil)
		time.Sleep(5 * time.Second)
		if _, err := r.e.Resolve(r.ctx(), docs, name.ResolveOptions{}); !errors.Is(err, name.ErrUpstream) {
			t.Errorf("err = %v, want %v", err, name.ErrUpstream)
		}
	})
}

// A node that signs a name of another node is not believed, and none may put such a name here. Rows
// from before the fleet count for nothing.
func TestSquatter(t *testing.T) {
	a, b := newMember("a", 2, "a.example"), newMember("b", 3, "b.example")
	a.row.Store(&tables.NameRow{Manifest: digest("a"), Seq: 1})
	a.slow = time.Second // the squatter answers long before
	b.row.Store(&tables.NameRow{Manifest: digest("squatted"), Seq: 9})
	bubble(t, inFleet, func(r *rig) {
		r.put(docs.String(), digest("before"))
		r.put("name:free.example", digest("free"))
		r.setFleet(self("self.example"), a, b)
		if got := r.resolve(docs.String()); got.Manifest != digest("a") {
			t.Errorf("%+v, want the owner's", got)
		}
		if r.count("index_integrity_fail_total") == 0 {
			t.Error("the squatter's record was not counted")
		}
		_, _, err := r.e.PutName(r.ctx(), alice, docs, digest("x"), "c")
		var foreign *name.ForeignNameError
		if !errors.As(err, &foreign) || foreign.Node != a.id {
			t.Errorf("err = %v, want a name of %s", err, a.id)
		}
		if _, _, err := r.e.PutName(r.ctx(), alice, key("name:x.a.example@1.0.0"), digest("x"), "c"); !errors.As(err,
			&foreign) {
			t.Errorf("a version: err = %v", err)
		}
		r.put("name:self.example", digest("own"))
		r.put("name:free.example", digest("free2"))
		if got := r.resolve("name:free.example"); got.Manifest != digest("free2") || got.Source != name.SourceLocal {
			t.Errorf("a name of no node: %+v", got)
		}
		if err := r.e.DeleteName(r.ctx(), alice, docs, "c"); err != nil {
			t.Errorf("delete the row from before: %v", err)
		}
	})
}

// When a name gets another owner, the answers of the earlier one end, cached and kept.
func TestNameGetsAnotherOwner(t *testing.T) {
	a, b := newMember("a", 2, "a.example"), newMember("b", 3)
	a.row.Store(&tables.NameRow{Manifest: digest("a"), Seq: 7})
	b.row.Store(&tables.NameRow{Manifest: digest("b"), Seq: 1})
	bubble(t, inFleet, func(r *rig) {
		r.setFleet(self(), a, b)
		r.resolve(docs.String())
		synctest.Wait()
		a.names, b.names = nil, []string{"a.example"}
		b.dead.Store(true)
		r.setFleet(self(), a, b)
		if got, err := r.e.Resolve(r.ctx(), docs, name.ResolveOptions{}); err == nil {
			t.Errorf("%+v of the earlier owner", got)
		}
		b.dead.Store(false)
		if got := r.resolve(docs.String()); got.Manifest != digest("b") {
			t.Errorf("%+v", got)
		}
	})
}

// Own names are signed for two days, other names of this node's file for an hour.
func TestOwnRecordsLastTwoDays(t *testing.T) {
	bubble(t, inFleet, func(r *rig) {
		r.put("name:self.example", digest("own"))
		r.put("name:free.example", digest("free"))
		r.setFleet(self("self.example"))
		for text, want := range map[string]time.Duration{"name:self.example": siteTTL, "name:free.example": nameTTL} {
			a, err := r.e.Resolve(r.ctx(), key(text), name.ResolveOptions{Local: true})
			if err != nil {
				t.Fatal(err)
			}
			n, _, err := name.ParseNameRecord(a.Record, key(text), trustedOwn, time.Now())
			if err != nil || n.ExpiresMS != time.Now().Add(want).UnixMilli() {
				t.Errorf("%s: %+v, %v", text, n, err)
			}
		}
	})
}

// In a restored file the seq of a name is never one that was given before the loss.
func TestSeqAfterRestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prev := tables.NameRow{Seq: rapid.Uint64Range(0, 1<<50).Draw(t, "seq")}
		at := store.Stamp{At: rapid.Int64Range(0, 1<<62).Draw(t, "at")}
		got := tables.NextSeq(prev, at, true)
		if got <= prev.Seq || got < uint64(at.At/1e6) || got != prev.Seq+1 && got != uint64(at.At/1e6) {
			t.Fatalf("seq = %d after %d at %d", got, prev.Seq, at.At)
		}
		if got := tables.NextSeq(prev, at, false); got != prev.Seq+1 {
			t.Fatalf("not restored: seq = %d", got)
		}
	})
}

// Without a fleet there is no task and no queue of it.
func TestWithoutFleet(t *testing.T) {
	r := newRig(t, nil)
	for _, task := range r.e.Tasks() {
		if task.Name == records.Renewer {
			t.Error("the renewer runs")
		}
	}
	for _, c := range r.catalog.Channels() {
		if c.Name == "records_tx" || c.Name == "renew_tick" {
			t.Errorf("%s is declared", c.Name)
		}
	}
}
