package registry_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
)

// A follower has the log of the hub, over a change of signers, a rotation of the log key and a
// restart, and tells its own readers of each version.
func TestFollowerHasTheLogOfTheHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 4)
	r := newFollower(t, h).Start()
	sub := r.Engine.Subscribe("test")
	defer sub.Close()
	wantReached(r, h)
	h.add(s, 5)
	head := h.of.Engine.Head()
	p, _ := change(h.of, head.Head.Version+1, head.Head.PayloadB3, head.Signers,
		func(n *record.SignerSet) {
			n.Signers = append(n.Signers, newSigners(2, 1).Keys[1].Signer(11))
		})
	h.of.Approve(p, append(s.Keys, newSigners(2, 1).Keys[1])...)
	h.of.Commit(p)
	cover(h.of)
	wantReached(r, h)
	h.rotateLogKey(s)
	r.Stop()
	h.add(s, 4)
	r.Open()
	r.Start()
	wantReached(r, h)
	h.add(s, 5)
	wantReached(r, h)
	if v := r.Engine.Head().Head.Version; v != 21 {
		t.Errorf("HEAD is %d", v)
	}
	r.WaitFor("the last version to be told", func() bool { return r.Engine.Told().Load() == 21 })
	if got := r.Engine.Follower().Status(); got.State != follow.OK || got.Version != 21 {
		t.Errorf("%+v", got)
	}
	r.WaitFor("the deep verifier to reach HEAD", func() bool { return r.Engine.VerifiedTo().Load() == 21 })
	if why := r.Engine.ChainError().Load(); why != nil {
		t.Error(*why)
	}
	r.Stop()
	log, err := export.Open(exported(r))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := rverify.VerifyWhole(r.Ctx(), log, log, rverify.Options{Genesis: r.Engine.Follower().Genesis()})
	if err != nil || !rep.OK || rep.Profile != rverify.ProfileFollowed || rep.Versions != 21 {
		t.Errorf("the export: %+v, %v", rep, err)
	}
}

// A follower takes no version and signs nothing, whatever it is asked, and leaves no audit record.
func TestFollowerRefusesWrites(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	calls := map[string]func() error{
		"propose": func() error { _, err := r.Engine.Propose(r.Ctx(), alice, []byte("{"), "", ""); return err },
		"approve": func() error {
			_, err := r.Engine.Approve(r.Ctx(), alice, "x", record.Approval{}, "")
			return err
		},
		"commit":   func() error { _, err := r.Engine.Commit(r.Ctx(), alice, "x", ""); return err },
		"withdraw": func() error { return r.Engine.Withdraw(r.Ctx(), alice, "x", "") },
		"genesis":  func() error { _, err := r.Engine.Genesis(r.Ctx(), alice, nil, nil, ""); return err },
		"adopt":    func() error { return r.Engine.Adopt(r.Ctx(), alice, "") },
		"catch up": func() error { _, err := r.Engine.CatchUp(r.Ctx(), alice, nil, ""); return err },
		"sign":     func() error { _, err := r.Engine.CheckpointNow(r.Ctx()); return err },
	}
	for _, synced := range []bool{false, true} {
		if synced {
			r.Start()
			r.WaitFor("HEAD", func() bool { return r.Engine.Head().Head.Version == 2 })
		}
		for name, call := range calls {
			var follows *document.FollowerError
			if err := call(); !errors.As(err, &follows) || follows.Hub != h.URL() {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if r.Engine.Pub().State.Load().Audit != (tables.AuditRef{}) {
		t.Error("a refusal left an audit record")
	}
}

// A file follows the log that it was begun with, or its own, and no other.
func TestFollowerKeepsItsLog(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	if got := newRounds(r).try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	wrong := func(name string, r *registrytest.Rig, change func(c *registry.Config)) {
		t.Helper()
		r.Stop()
		cfg := r.Config
		change(&r.Config)
		r.Wire()
		if err := errors.Join(r.Store.Open(r.Ctx()), r.Store.Prepare(r.Ctx())); err != nil {
			t.Fatal(err)
		}
		r.Sup.Start(r.Store.Tasks()...)
		r.Stopped = false
		var mismatch *registry.FollowMismatchError
		if err := r.Engine.Recover(r.Ctx()); !errors.As(err, &mismatch) {
			t.Errorf("%s: %v", name, err)
		}
		r.Stop()
		r.Config = cfg
	}
	wrong("no longer a follower", r, func(c *registry.Config) { c.Follow = registry.FollowConfig{} })
	wrong("another genesis", r, func(c *registry.Config) { c.Follow.Genesis = b3.Sum([]byte("x")).String() })
	wrong("a hub of its own", h.of, func(c *registry.Config) { c.Follow = r.Config.Follow })
	r.Open()
	wantFollowed(r)
}

// What a follower has is as old as the newest checkpoint of the hub: a hub that is frozen, or does
// not answer, is no fork and is not fresh either.
func TestFollowerOfAFrozenHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	f := newRounds(r)
	if err := r.Engine.Follower().OK(); err == nil {
		t.Error("ready before anything was read")
	}
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	r.Advance(time.Hour)
	if age, known := r.Engine.Age(); !known || age < time.Hour || age > time.Hour+registrytest.Patience {
		t.Errorf("age %s, %v", age, known)
	}
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("after an hour: %+v", got)
	}
	h.set(func(h *fakeHub) { h.fail = func(string) error { return errors.New("429") } })
	if got := f.try(t); got.State != follow.Waiting || r.Engine.Follower().OK() != nil {
		t.Errorf("of a busy hub: %+v, %v", got, r.Engine.Follower().OK())
	}
	r.Advance(24 * time.Hour)
	if got := f.try(t); got.State != follow.Stale {
		t.Errorf("after a day: %+v", got)
	}
	h.set(func(h *fakeHub) { h.fail = nil })
	if got := f.try(t); got.State != follow.Stale {
		t.Errorf("the old checkpoint again: %+v", got)
	}
	h.of.Advance(25 * time.Hour)
	cover(h.of)
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("signed again: %+v", got)
	}
	wantEqual(r, h)
	h.of.Advance(6 * time.Minute)
	cover(h.of)
	before := r.Engine.Pub().Latest.Load()
	if got := f.try(t); got.State != follow.Unsound || r.Engine.Pub().Latest.Load() != before {
		t.Errorf("signed ahead of this clock: %+v", got)
	}
}

// A follower names a hub and its genesis, both or none, and calls no other host without TLS.
func TestFollowConfig(t *testing.T) {
	t.Parallel()
	genesis := b3.Sum([]byte("x")).String()
	for _, tt := range []struct {
		url, genesis string
		change       func(c *registry.Config)
		fault        string
	}{
		{"https://hub.example:8443", genesis, nil, ""},
		{"https://hub.example/", genesis, nil, ""},
		{"http://127.0.0.1:8080", genesis, nil, ""},
		{"http://[::1]:8080", genesis, nil, ""},
		{"http://localhost:8080", genesis, nil, ""},
		{"", "", func(c *registry.Config) { c.Storage.CheckpointInterval = unit.Duration(24 * time.Hour) }, ""},
		{"http://hub.example", genesis, nil, "follow.url"},
		{"http://10.0.0.1", genesis, nil, "follow.url"},
		{"https://a:b@hub.example", genesis, nil, "follow.url"},
		{"https://hub.example/path", genesis, nil, "follow.url"},
		{"https://hub.example?x=1", genesis, nil, "follow.url"},
		{"ftp://hub.example", genesis, nil, "follow.url"},
		{"hub.example", genesis, nil, "follow.url"},
		{"", genesis, nil, "follow.url"},
		{"https://hub.example", "", nil, "follow.genesis"},
		{"https://hub.example", "b3:00", nil, "follow.genesis"},
		{"https://hub.example", b3.Digest{}.String(), nil, "follow.genesis"},
		{"https://hub.example", genesis, func(c *registry.Config) { c.Bootstrap.TrustRootsHash = b3.Sum(nil).String() },
			"bootstrap"},
		{"https://hub.example", genesis, func(c *registry.Config) {
			c.Follow.MaxAge = unit.Duration(19 * time.Minute)
		}, "follow.max_age"},
	} {
		c := registry.DefaultConfig()
		c.Follow.URL, c.Follow.Genesis = tt.url, tt.genesis
		if tt.change != nil {
			tt.change(&c)
		}
		err := c.Validate()
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%q, %q: %v, want %q", tt.url, tt.genesis, err, tt.fault)
		}
	}
}

// A version is here within two seconds of its commit while the hub's stream is heard, within a poll
// if it is not. After a fault the stream is used again soon, and less with each further fault.
func TestFollowerPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, s := newHub(t)
		r := newFollower(t, h).Start()
		commit := func() time.Duration {
			t.Helper()
			v := h.of.Engine.Head().Head.Version + 1
			p := h.of.Propose(v, "later")
			h.of.Approve(p, s.Keys...)
			h.of.Commit(p)
			begun := time.Now()
			r.WaitFor("the version", func() bool { return r.Engine.Head().Head.Version == v })
			return time.Since(begun)
		}
		r.WaitFor("the genesis", func() bool { return r.Engine.Head().Head.Version == 1 })
		for range 5 {
			if took := commit(); took > 2*time.Second {
				t.Errorf("a version took %s", took)
			}
		}
		wrong := func(call string, _ uint64, raw []byte) []byte {
			if call == "payload" {
				return raw[1:]
			}
			return raw
		}
		h.set(func(h *fakeHub) { h.lie = wrong })
		h.add(s, 1)
		r.WaitFor("the fault", func() bool { return r.Engine.Follower().Status().State == follow.Unsound })
		h.set(func(h *fakeHub) { h.lie = nil })
		if took := commit(); took > 3*time.Second {
			t.Errorf("after one fault a version took %s", took)
		}
		asked := 0
		h.set(func(h *fakeHub) {
			h.fail = func(call string) error {
				if call == "checkpoint" {
					asked++
				}
				return nil
			}
			h.lie = wrong
		})
		h.add(s, 1)
		r.WaitFor("the fault", func() bool { return r.Engine.Follower().Status().State == follow.Unsound })
		before := asked
		for range 60 {
			h.add(s, 1)
			time.Sleep(time.Second)
		}
		if n := asked - before; n > 6 { // after 1, 2, 4, 8, 16 and 30 s
			t.Errorf("a bad hub was asked %d times within a minute", n)
		}
		h.set(func(h *fakeHub) { h.lie = nil })
		if took := commit(); took > 30*time.Second {
			t.Errorf("the sound hub was noticed after %s", took)
		}
		h.set(func(h *fakeHub) {
			h.fail = func(call string) error {
				if call == "hear" {
					return errors.New("503")
				}
				return nil
			}
		})
		h.of.Stop() // ends the stream
		h.set(func(h *fakeHub) { h.of.Open() })
		h.of.Start()
		if took := commit(); took > 32*time.Second {
			t.Errorf("without a stream a version took %s", took)
		}
		r.Stop()
		h.of.Stop()
	})
}
