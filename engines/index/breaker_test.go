package index_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// The states of the breaker of a peer, in virtual time.
func TestBreaker(t *testing.T) {
	var answer atomic.Pointer[error]
	set := func(err error) { answer.Store(&err) }
	p := &fake{providers: func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) { return nil, *answer.Load() }}
	n := 0
	type run func(r *rig, ask func(count int), state func(want string))
	begin := func(t *testing.T, change func(*index.Config), body run) {
		p.sends.Store(0)
		bubble(t, all(withPeers(p), setting(change)), func(r *rig) {
			body(r, func(count int) {
				for range count {
					n++
					_, _, _ = r.ask(digest("%d", n), name.ProvidersOptions{})
				}
			}, func(want string) {
				t.Helper()
				time.Sleep(250 * time.Millisecond)
				synctest.Wait()
				if got := r.e.Peers()[0].Breaker; got != want || r.count("breaker_state", "state", want) != 1 ||
					r.count("breaker_state") != 1 {
					t.Errorf("breaker is %s, want %s; series %v", got, want, r.count("breaker_state", "state", want))
				}
			})
		})
	}
	same := func(*index.Config) {}
	t.Run("half of the calls fail: closed; one more: open", func(t *testing.T) {
		begin(t, same, func(_ *rig, ask func(int), state func(string)) {
			set(nil)
			ask(10)
			set(name.ErrInvalid)
			ask(10)
			state("closed")
			ask(1)
			state("open")
		})
	})
	t.Run("too few calls say nothing", func(t *testing.T) {
		begin(t, same, func(_ *rig, ask func(int), state func(string)) {
			set(name.ErrInvalid)
			ask(9)
			state("closed")
			ask(1)
			state("open")
		})
	})
	t.Run("the window forgets", func(t *testing.T) {
		begin(t, same, func(_ *rig, ask func(int), state func(string)) {
			set(name.ErrInvalid)
			ask(9)
			time.Sleep(31 * time.Second)
			ask(9)
			state("closed")
		})
	})
	t.Run("open refuses at once, counts it, and ends after its cooldown", func(t *testing.T) {
		begin(t, same, func(r *rig, ask func(int), state func(string)) {
			set(name.ErrInvalid)
			ask(10)
			state("open")
			sent := p.sends.Load()
			_, took, err := r.ask(digest("refused"), name.ProvidersOptions{})
			if _, open := errors.AsType[*name.BreakerOpenError](err); !open || took != 0 || p.sends.Load() != sent ||
				r.count("breaker_open_total") != 1 {
				t.Errorf("%v after %v, %d sends", err, took, p.sends.Load()-sent)
			}
			time.Sleep(9 * time.Second)
			state("open")
			set(nil)
			time.Sleep(500 * time.Millisecond)
			state("half_open")
			ask(3)
			state("closed")
		})
	})
	t.Run("probes decide", func(t *testing.T) {
		for _, tt := range []struct {
			failing int
			want    string
		}{{0, "closed"}, {1, "closed"}, {2, "open"}, {3, "open"}} {
			begin(t, func(c *index.Config) { c.Cache.NegTTLMS = 0 }, func(_ *rig, ask func(int), state func(string)) {
				set(name.ErrInvalid)
				ask(10)
				state("open")
				time.Sleep(9750 * time.Millisecond)
				state("half_open")
				ask(tt.failing)
				if tt.failing < 2 {
					set(nil)
					ask(3 - tt.failing)
				}
				state(tt.want)
			})
		}
	})
	t.Run("a probe without traffic", func(t *testing.T) {
		begin(t, same, func(r *rig, ask func(int), state func(string)) {
			set(name.ErrInvalid)
			ask(10)
			state("open")
			set(nil)
			time.Sleep(20 * time.Second)
			state("closed")
			if r.count("index_background_total") != 3 {
				t.Errorf("%v probes", r.count("index_background_total"))
			}
		})
	})
	t.Run("a reload changes the rule", func(t *testing.T) {
		begin(t, same, func(r *rig, ask func(int), state func(string)) {
			next := r.cfg
			next.Breaker.MinSamples = 3
			r.e.Reload(next)
			synctest.Wait()
			set(name.ErrInvalid)
			ask(3)
			state("open")
		})
	})
	t.Run("overtaken ten times", func(t *testing.T) {
		slow, quick := &fake{region: "a-b", providers: hangs}, &fake{region: "x", providers: knows(seedKey(9), good)}
		bubble(t, all(withPeers(slow, quick), setting(func(c *index.Config) { c.DHT.Alpha = 1 })), func(r *rig) {
			for i := range 10 {
				if _, took, err := r.ask(digest("%d", i), name.ProvidersOptions{Region: "a-b"}); err != nil ||
					!near(took, 150*time.Millisecond+good) {
					t.Errorf("%v after %v", err, took)
				}
			}
			time.Sleep(250 * time.Millisecond)
			if got := r.e.Peers()[0]; got.Breaker != "open" || got.Failed != 10 || got.LastError == "" {
				t.Errorf("%+v", got)
			}
			if _, took, err := r.ask(digest("next"), name.ProvidersOptions{Region: "a-b"}); err != nil || !near(took, good) {
				t.Errorf("%v after %v", err, took)
			}
		})
	})
	t.Run("a lost race says nothing", func(t *testing.T) {
		bubble(
			t,
			withPeers(
				&fake{providers: knows(seedKey(9), 100*time.Millisecond)},
				&fake{providers: knows(seedKey(9), good)},
			),
			func(r *rig) {
				for i := range 20 {
					_, _, _ = r.ask(digest("%d", i), name.ProvidersOptions{})
				}
				time.Sleep(250 * time.Millisecond)
				for _, p := range r.e.Peers() {
					if p.Breaker != "closed" || p.Failed != 0 {
						t.Errorf("%+v", p)
					}
				}
			},
		)
	})
}
