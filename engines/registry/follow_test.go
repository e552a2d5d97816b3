package registry

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
)

// A follower has the log of the hub, over a change of signers, a rotation of the log key and a
// restart, and tells its own readers of each version.
func TestFollowerHasTheLogOfTheHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 4)
	r := newFollower(t, h).start()
	sub := r.e.Subscribe("test")
	defer sub.Close()
	r.wantReached(h)
	h.add(s, 5)
	head := h.of.e.Head()
	p, _ := h.of.change(head.Head.Version+1, head.Head.PayloadB3, head.Signers,
		func(n *record.SignerSet) { n.Signers = append(n.Signers, newSigners(2, 1).keys[1].Signer(11)) })
	h.of.approve(p, append(s.keys, newSigners(2, 1).keys[1])...)
	h.of.commit(p)
	h.of.cover()
	r.wantReached(h)
	h.rotateLogKey(s)
	r.stop()
	h.add(s, 4)
	r.open()
	r.start()
	r.wantReached(h)
	h.add(s, 5)
	r.wantReached(h)
	if v := r.e.Head().Head.Version; v != 21 {
		t.Errorf("HEAD is %d", v)
	}
	r.waitFor("the last version to be told", func() bool { return r.e.told.Load() == 21 })
	if got := r.e.follow.Status(); got.State != follow.OK || got.Version != 21 {
		t.Errorf("%+v", got)
	}
	r.waitFor("the deep verifier to reach HEAD", func() bool { return r.e.verifiedTo.Load() == 21 })
	if why := r.e.chainError.Load(); why != nil {
		t.Error(*why)
	}
	r.stop()
	log, err := export.Open(r.exported())
	if err != nil {
		t.Fatal(err)
	}
	rep, err := rverify.VerifyWhole(r.ctx(), log, log, rverify.Options{Genesis: r.e.follow.Genesis()})
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
		"propose":  func() error { _, err := r.e.Propose(r.ctx(), alice, []byte("{"), "", ""); return err },
		"approve":  func() error { _, err := r.e.Approve(r.ctx(), alice, "x", record.Approval{}, ""); return err },
		"commit":   func() error { _, err := r.e.Commit(r.ctx(), alice, "x", ""); return err },
		"withdraw": func() error { return r.e.Withdraw(r.ctx(), alice, "x", "") },
		"genesis":  func() error { _, err := r.e.Genesis(r.ctx(), alice, nil, nil, ""); return err },
		"adopt":    func() error { return r.e.Adopt(r.ctx(), alice, "") },
		"catch up": func() error { _, err := r.e.CatchUp(r.ctx(), alice, nil, ""); return err },
		"sign":     func() error { _, err := r.e.CheckpointNow(r.ctx()); return err },
	}
	for _, synced := range []bool{false, true} {
		if synced {
			r.start()
			r.waitFor("HEAD", func() bool { return r.e.Head().Head.Version == 2 })
		}
		for name, call := range calls {
			var follows *document.FollowerError
			if err := call(); !errors.As(err, &follows) || follows.Hub != h.URL() {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if r.e.pub.State.Load().Audit != (tables.AuditRef{}) {
		t.Error("a refusal left an audit record")
	}
}

// A file follows the log that it was begun with, or its own, and no other.
func TestFollowerKeepsItsLog(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	if got := r.rounds().try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	wrong := func(name string, r *rig, change func(c *Config)) {
		t.Helper()
		r.stop()
		cfg := r.cfg
		change(&r.cfg)
		r.wire()
		if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
			t.Fatal(err)
		}
		r.sup.Start(r.store.Tasks()...)
		r.stopped = false
		var mismatch *FollowMismatchError
		if err := r.e.Recover(r.ctx()); !errors.As(err, &mismatch) {
			t.Errorf("%s: %v", name, err)
		}
		r.stop()
		r.cfg = cfg
	}
	wrong("no longer a follower", r, func(c *Config) { c.Follow = FollowConfig{} })
	wrong("another genesis", r, func(c *Config) { c.Follow.Genesis = b3.Sum([]byte("x")).String() })
	wrong("a hub of its own", h.of, func(c *Config) { c.Follow = r.cfg.Follow })
	r.open()
	r.wantFollowed()
}

// What a follower has is as old as the newest checkpoint of the hub: a hub that is frozen, or does
// not answer, is no fork and is not fresh either.
func TestFollowerOfAFrozenHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	f := r.rounds()
	if err := r.e.follow.OK(); err == nil {
		t.Error("ready before anything was read")
	}
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	r.advance(time.Hour)
	if age, known := r.e.Age(); !known || age < time.Hour || age > time.Hour+patience {
		t.Errorf("age %s, %v", age, known)
	}
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("after an hour: %+v", got)
	}
	h.set(func(h *fakeHub) { h.fail = func(string) error { return errors.New("429") } })
	if got := f.try(t); got.State != follow.Waiting || r.e.follow.OK() != nil {
		t.Errorf("of a busy hub: %+v, %v", got, r.e.follow.OK())
	}
	r.advance(24 * time.Hour)
	if got := f.try(t); got.State != follow.Stale {
		t.Errorf("after a day: %+v", got)
	}
	h.set(func(h *fakeHub) { h.fail = nil })
	if got := f.try(t); got.State != follow.Stale {
		t.Errorf("the old checkpoint again: %+v", got)
	}
	h.of.advance(25 * time.Hour)
	h.of.cover()
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("signed again: %+v", got)
	}
	r.wantEqual(h)
	h.of.advance(6 * time.Minute)
	h.of.cover()
	before := r.e.pub.Latest.Load()
	if got := f.try(t); got.State != follow.Unsound || r.e.pub.Latest.Load() != before {
		t.Errorf("signed ahead of this clock: %+v", got)
	}
}

// A follower names a hub and its genesis, both or none, and calls no other host without TLS.
func TestFollowConfig(t *testing.T) {
	t.Parallel()
	genesis := b3.Sum([]byte("x")).String()
	for _, tt := range []struct {
		url, genesis string
		change       func(c *Config)
		fault        string
	}{
		{"https://hub.example:8443", genesis, nil, ""},
		{"https://hub.example/", genesis, nil, ""},
		{"http://127.0.0.1:8080", genesis, nil, ""},
		{"http://[::1]:8080", genesis, nil, ""},
		{"http://localhost:8080", genesis, nil, ""},
		{"", "", func(c *Config) { c.Storage.CheckpointInterval = unit.Duration(24 * time.Hour) }, ""},
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
		{"https://hub.example", genesis, func(c *Config) { c.Bootstrap.TrustRootsHash = b3.Sum(nil).String() },
			"bootstrap"},
		{"https://hub.example", genesis, func(c *Config) {
			c.Follow.MaxAge = unit.Duration(19 * time.Minute)
		}, "follow.max_age"},
	} {
		c := DefaultConfig()
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
		r := newFollower(t, h).start()
		commit := func() time.Duration {
			t.Helper()
			v := h.of.e.Head().Head.Version + 1
			p := h.of.propose(v, "later")
			h.of.approve(p, s.keys...)
			h.of.commit(p)
			begun := time.Now()
			r.waitFor("the version", func() bool { return r.e.Head().Head.Version == v })
			return time.Since(begun)
		}
		r.waitFor("the genesis", func() bool { return r.e.Head().Head.Version == 1 })
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
		r.waitFor("the fault", func() bool { return r.e.follow.Status().State == follow.Unsound })
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
		r.waitFor("the fault", func() bool { return r.e.follow.Status().State == follow.Unsound })
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
		h.of.stop() // ends the stream
		h.set(func(h *fakeHub) { h.of.open() })
		h.of.start()
		if took := commit(); took > 32*time.Second {
			t.Errorf("without a stream a version took %s", took)
		}
		r.stop()
		h.of.stop()
	})
}
