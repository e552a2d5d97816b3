package index_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
)

// node exposes an engine to another engine as a peer.
type node struct {
	target string
	e      *index.Engine
}

func (n *node) Target() string { return n.target }
func (n *node) Region() string { return "" }

func (n *node) Providers(ctx context.Context, cid b3.Digest, limit int) ([]name.Provider, error) {
	set, err := n.e.Providers(ctx, cid, name.ProvidersOptions{Local: true, Limit: limit})
	return set.Providers, err
}

func (n *node) Name(ctx context.Context, k name.Key) ([]byte, error) {
	a, err := n.e.Resolve(ctx, k, name.ResolveOptions{Local: true})
	return a.Record, err
}

// Two nodes that ask each other do not keep alive an answer that its origin has removed: a node
// serves to other nodes only answers from its own file.
func TestHearsayIsNotPassedOn(t *testing.T) {
	o, second, first := newOrigin(7), &node{target: "second:8443"}, &node{target: "first:8443"}
	k, cid := key("name:docs.example"), digest("content")
	o.put(k, tables.NameRow{Manifest: digest("1"), Seq: 1})
	asking := func(n *node) func(*rig) {
		return all(origins(o), trusting("example", 7), func(r *rig) { r.peers = append(r.peers, n) })
	}
	bubble(t, asking(second), func(r *rig) {
		other := newRig(t, asking(first)).start()
		defer other.stop()
		first.e, second.e = r.e, other.e
		known := func() (names, providers int) {
			for _, e := range []*index.Engine{r.e, other.e} {
				if _, err := e.Resolve(r.ctx(), k, name.ResolveOptions{}); err == nil {
					names++
				} else if !errors.Is(err, name.ErrNotFound) {
					t.Errorf("name: %v", err)
				}
				if _, err := e.Providers(r.ctx(), cid, name.ProvidersOptions{}); err == nil {
					providers++
				} else if !errors.Is(err, name.ErrNotFound) {
					t.Errorf("providers: %v", err)
				}
				e.Settle()
				time.Sleep(3 * time.Second) // so that their entries end at different times
			}
			return names, providers
		}
		if names, providers := known(); names != 2 || providers != 2 {
			t.Fatalf("%d nodes know the name, %d the provider", names, providers)
		}
		o.put(k, tables.NameRow{Deleted: true})
		o.fake.providers = nil
		for end := time.Now().Add(12 * time.Second); time.Now().Before(end); {
			known()
		}
		if names, providers := known(); names != 0 || providers != 0 {
			t.Errorf("more than the positive time after it was taken back %d nodes know the name, %d the provider",
				names, providers)
		}
	})
}

// A cached answer from the node's own file is served to other nodes.
func TestOwnWordIsPassedOnFromTheCache(t *testing.T) {
	bubble(t, withPeers(&fake{}), func(r *rig) {
		k, cid := key("name:docs.example"), digest("content")
		r.put(k.String(), digest("1"))
		done, err := r.e.Announce(r.ctx(), alice,
			[]name.Announcement{{CID: cid, Addrs: []string{"/ip4/192.0.2.1/tcp/8443/https"}}}, "corr")
		if err != nil || done[0].Err != nil {
			t.Fatalf("%+v, %v", done, err)
		}
		for _, want := range []name.Source{name.SourceLocal, name.SourceCache} {
			a, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{Local: true})
			if err != nil || a.Source != want || a.Record == nil {
				t.Errorf("name: %+v, %v, want %s", a, err, want)
			}
			set, err := r.e.Providers(r.ctx(), cid, name.ProvidersOptions{Local: true})
			if err != nil || set.Source != want || len(set.Providers) != 1 {
				t.Errorf("providers: %+v, %v, want %s", set, err, want)
			}
			r.e.Settle()
		}
	})
}
