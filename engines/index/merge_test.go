package index_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
)

// serves returns a peer function that answers after d with one signed record per owner.
func serves(
	d time.Duration, at time.Time, regions map[byte]string,
) func(context.Context, b3.Digest) ([]name.Provider, error) {
	return func(ctx context.Context, cid b3.Digest) (out []name.Provider, err error) {
		for owner, region := range regions {
			out = append(out, name.Provider{Record: signed(seedKey(owner), cid, region, at, time.Hour)})
		}
		return out, wait(ctx, d)
	}
}

// unsignedAt returns a peer function that answers after d with an unsigned provider at an address.
func unsignedAt(
	d time.Duration, owner ed25519.PrivateKey, addr string,
) func(context.Context, b3.Digest) ([]name.Provider, error) {
	return func(ctx context.Context, _ b3.Digest) ([]name.Provider, error) {
		return []name.Provider{{Peer: name.PeerIDOf(publicOf(owner)), Addrs: []string{addr}}}, wait(ctx, d)
	}
}

// The answers of all peers of the first wave are merged and ordered by the requested region,
// independently of their order.
func TestProvidersAreMerged(t *testing.T) {
	var want []name.Provider
	for i, order := range [][3]time.Duration{{0, 10, 20}, {20, 10, 0}, {10, 20, 0}, {140, 0, 70}} {
		var at time.Time
		closest, far, plain := &fake{target: "a:1"}, &fake{target: "b:1"}, &fake{target: "c:1"}
		bubble(t, withPeers(closest, far, plain), func(r *rig) {
			at = time.Now()
			closest.providers = serves(order[0]*time.Millisecond, at, map[byte]string{5: "eu-west-3", 6: "us-east-1"})
			far.providers = serves(order[1]*time.Millisecond, at, map[byte]string{6: "us-east-1", 7: "eu-west-1"})
			plain.providers = unsignedAt(order[2]*time.Millisecond, seedKey(8), "/ip4/192.0.2.1/tcp/1")
			if i%2 == 0 {
				far.providers, plain.providers = plain.providers, far.providers
			}
			cid := digest("content")
			set, took, err := r.ask(cid, name.ProvidersOptions{Region: "eu-west-3"})
			if err != nil || len(set.Providers) != 4 || set.Providers[0].Region != "eu-west-3" ||
				set.Providers[1].Region != "eu-west-1" ||
				set.Providers[3].Verified {
				t.Fatalf("%v: %+v after %v, %v", order, set, took, err)
			}
			if want == nil {
				want = set.Providers
			}
			if !reflect.DeepEqual(set.Providers, want) || !near(took, slices.Max(order[:])*time.Millisecond) {
				t.Errorf("%v: after %v\n%+v, want\n%+v", order, took, set.Providers, want)
			}
		})
	}
}

// If two peers report the same unsigned provider with different addresses, the result does not
// depend on the order of their answers.
func TestMergeOfUnsigned(t *testing.T) {
	seen := map[string]bool{}
	for _, first := range []time.Duration{0, 50} {
		bubble(t, withPeers(
			&fake{providers: unsignedAt(first*time.Millisecond, seedKey(8), "/ip4/192.0.2.1/tcp/1")},
			&fake{providers: unsignedAt(25*time.Millisecond, seedKey(8), "/ip4/192.0.2.2/tcp/1")},
		), func(r *rig) {
			set, _, err := r.ask(digest("content"), name.ProvidersOptions{})
			if err != nil || len(set.Providers) != 1 {
				t.Fatalf("%+v, %v", set, err)
			}
			seen[fmt.Sprint(set.Providers[0].Addrs)] = true
		})
	}
	if len(seen) != 1 {
		t.Errorf("%v", seen)
	}
}

// A hanging peer delays one lookup by the hedge time, and no other until the cooldown ends, even if
// its call outlives the lookup. It does not count as failed, since it may be far away. After an
// answer in time it is waited for again.
func TestLatePeerIsWaitedForOnce(t *testing.T) {
	deaf := func(ctx context.Context, _ b3.Digest) ([]name.Provider, error) {
		<-ctx.Done()
		time.Sleep(400 * time.Millisecond)
		return nil, context.Cause(ctx)
	}
	for _, late := range []func(context.Context, b3.Digest) ([]name.Provider, error){hangs, deaf} {
		quick, other := &fake{providers: knows(seedKey(5), good)}, &fake{providers: knows(seedKey(6), 2*good)}
		slow := &fake{providers: late}
		cooldown := setting(func(c *index.Config) { c.Breaker.CooldownS = 10 })
		bubble(t, all(withPeers(quick, other, slow), cooldown), func(r *rig) {
			n := 0
			ask := func(want time.Duration, providers int) {
				t.Helper()
				n++
				set, took, err := r.ask(digest("%d", n), name.ProvidersOptions{})
				if err != nil || len(set.Providers) != providers || !near(took, want) {
					t.Errorf("lookup %d: %d providers after %v, %v; want %d after %v", n, len(set.Providers), took, err,
						providers, want)
				}
			}
			ask(150*time.Millisecond, 2)
			for range 30 {
				ask(2*good, 2)
			}
			time.Sleep(10 * time.Second)
			ask(150*time.Millisecond, 2)
			ask(2*good, 2)
			synctest.Wait() // for calls that the lookup has left
			slow.providers = knows(seedKey(7), good)
			ask(2*good, 3)
			synctest.Wait()
			slow.providers = knows(seedKey(7), 3*good) // it is not late any more
			ask(3*good, 3)
			for _, p := range r.e.Peers() {
				if p.Breaker != "closed" || p.Failed != 0 {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// A name that most peers do not know is not found, even if some do not answer. Their number is
// reported, and the entry is cached for half the time. One of two peers is not most. A lookup that
// the deadline ends is counted, with either outcome.
func TestSilentPeers(t *testing.T) {
	k := key("name:docs.example")
	down := func(err error) func(context.Context, name.Key) ([]byte, error) {
		return func(context.Context, name.Key) ([]byte, error) { return nil, err }
	}
	hang := func(ctx context.Context, _ name.Key) ([]byte, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
	for _, tt := range []struct {
		name   string
		peers  int
		silent []func(context.Context, name.Key) ([]byte, error)
		want   error
	}{
		{"all know nothing", 3, nil, name.ErrNotFound},
		{"one of three fails", 3, []func(context.Context, name.Key) ([]byte, error){down(name.ErrInvalid)}, name.ErrNotFound},
		{"one of three is refused", 3, []func(context.Context, name.Key) ([]byte, error){down(name.ErrTransient)}, name.ErrNotFound},
		{"one of three hangs", 3, []func(context.Context, name.Key) ([]byte, error){hang}, name.ErrNotFound},
		{"one of two fails", 2, []func(context.Context, name.Key) ([]byte, error){down(name.ErrInvalid)}, name.ErrUpstream},
		{"one of two hangs", 2, []func(context.Context, name.Key) ([]byte, error){hang}, name.ErrTimeout},
		{"two of four fail", 4, []func(context.Context, name.Key) ([]byte, error){down(name.ErrInvalid), down(name.ErrNoRoute)}, name.ErrUpstream},
		{"nine of twenty fail", 20, slices.Repeat([]func(context.Context, name.Key) ([]byte, error){down(name.ErrTransient), down(name.ErrInvalid), down(name.ErrNoRoute)}, 3), name.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var peers []*fake
			for i := range tt.peers {
				p := &fake{}
				if i < len(tt.silent) {
					p.name = tt.silent[i]
				}
				peers = append(peers, p)
			}
			bubble(t, all(withPeers(peers...), trusting("*", 7)), func(r *rig) {
				ask := func() {
					t.Helper()
					_, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{})
					s, silent := errors.AsType[*name.SilentError](err)
					if !errors.Is(err, tt.want) || silent != (tt.want == name.ErrNotFound && tt.silent != nil) ||
						silent && s.Peers != len(tt.silent) {
						t.Errorf("%v, want %v", err, tt.want)
					}
				}
				sends := func() (n int64) {
					for _, p := range peers {
						n += p.sends.Load()
					}
					return n
				}
				ask()
				late := 0.0
				if strings.HasSuffix(tt.name, "hangs") {
					late = 1
				}
				if r.count("io_timeouts_total", "op", "dht") != late || r.count("resolve_deadline_hit") != late {
					t.Errorf("%v late calls, %v deadlines, want %v", r.count("io_timeouts_total", "op", "dht"),
						r.count("resolve_deadline_hit"), late)
				}
				if tt.want != name.ErrNotFound {
					return
				}
				r.e.Settle()
				asked := sends()
				time.Sleep(850 * time.Millisecond) // of 1 s, less a tenth
				if ask(); sends() != asked {
					t.Error("not kept")
				}
				time.Sleep(300 * time.Millisecond)
				if ask(); (sends() != asked) != (tt.silent != nil) {
					t.Errorf("kept %t after half the time", sends() == asked)
				}
			})
		})
	}
}

// A stale answer wins over "not found" of other peers while the peer that gave it does not answer.
// It ends once that peer answers "not found".
func TestStaleWinsOverSilence(t *testing.T) {
	k, cid := key("name:docs.example"), digest("content")
	o := newOrigin(7)
	o.put(k, tables.NameRow{Manifest: digest("1"), Seq: 1})
	others := []*fake{{target: "a:1"}, {target: "b:1"}, {target: "c:1"}}
	bubble(
		t,
		all(origins(o), withPeers(others...), trusting("*", 7), setting(func(c *index.Config) { c.DHT.Alpha = 4 })),
		func(r *rig) {
			know := func(want name.Source) {
				t.Helper()
				a, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{})
				set, _, failed := r.ask(cid, name.ProvidersOptions{})
				if err != nil || failed != nil || a.Source != want || set.Source != want {
					t.Errorf("%q, %v; %q, %v; want %q", a.Source, err, set.Source, failed, want)
				}
			}
			know(name.SourcePeer)
			r.e.Settle()
			time.Sleep(12 * time.Second)
			o.dead.Store(true)
			know(name.SourceStale)
			o.dead.Store(false)
			o.put(k, tables.NameRow{})
			o.fake.providers = nil
			others[0].name = func(context.Context, name.Key) ([]byte, error) { return nil, name.ErrInvalid }
			others[0].providers = fails(name.ErrInvalid, 0)
			_, err := r.e.Resolve(r.ctx(), k, name.ResolveOptions{})
			_, _, failed := r.ask(cid, name.ProvidersOptions{})
			for _, err := range []error{err, failed} {
				if s, ok := errors.AsType[*name.SilentError](err); !ok || s.Peers != 1 {
					t.Errorf("taken back: %v", err)
				}
			}
		},
	)
}
