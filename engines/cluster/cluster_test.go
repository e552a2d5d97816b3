package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// bubble runs a test of a world in a bubble and stops its servers.
func bubble(t *testing.T, seed uint64, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		defer func() {
			w.end()
			time.Sleep(time.Second) // connections that raft does not join may wait for a delay
		}()
		test(t, w)
	})
}

// One server with rows becomes three without copying anything but its file, and all have the same
// rows, also after all were stopped and started.
func TestOneBecomesThree(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.three()
		w.leader().mustPut("second", "2")
		w.equal()
		for _, m := range w.members {
			m.stop()
		}
		for _, m := range w.members {
			m.on()
		}
		w.leader().mustPut("third", "3")
		w.equal()
	})
}

// A leader that is cut off during a commit does not know its outcome, shows no row of it, and ends
// its life. The others had not seen the entry: it never happened.
func TestLeaderCutOff(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		w.three()
		old := w.leader()
		lives := old.boots()
		w.mesh.isolate(old.addr, true)
		err := old.put("lost", "1")
		if !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("err = %v, want %v", err, store.ErrUnknown)
		}
		w.until("a new life", func() bool { return old.boots() > lives && old.now() != nil })
		if got := old.get("lost"); got != "" {
			t.Errorf("the row is visible: %q", got)
		}
		w.leader(old).mustPut("kept", "1")
		w.mesh.heal()
		w.equal()
		if old.get("lost") != "" || old.get("kept") != "1" {
			t.Errorf("lost = %q, kept = %q", old.get("lost"), old.get("kept"))
		}
	})
}

// The answers of the followers are cut off, their entries are not: the outcome is unknown to the
// leader, and the row is there.
func TestLeaderHearsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.three()
		old := w.leader()
		for _, m := range w.members {
			if m != old {
				w.mesh.set(m.addr, old.addr, true)
			}
		}
		if err := old.put("done", "1"); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("err = %v, want %v", err, store.ErrUnknown)
		}
		w.leader(old)
		w.mesh.heal()
		w.equal()
		if got := w.leader().get("done"); got != "1" {
			t.Errorf("done = %q", got)
		}
	})
}

// A server that does not lead refuses commands, and nothing is written.
func TestFollowerRefuses(t *testing.T) {
	bubble(t, 4, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		for _, m := range w.members {
			if m == lead {
				continue
			}
			if err := m.put("k", "v"); !errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrUnknown) {
				t.Errorf("%s: err = %v", m.id, err)
			}
			if id, addr, ok := m.now().node.Leader(); !ok || id != lead.id || addr != lead.addr {
				t.Errorf("%s: leader %s at %s, %v", m.id, id, addr, ok)
			}
			if err := m.now().node.Confirm(t.Context()); !errors.Is(err, store.ErrNotLeader) {
				t.Errorf("%s: confirm: %v", m.id, err)
			}
		}
	})
}

// short makes the log short, so that a server that was off gets the file. The log removes whole
// segments only.
func short(n *Node) {
	n.segment = 2 << 10
	n.tune = func(c *raft.Config) {
		c.TrailingLogs = 4
		c.SnapshotThreshold = 8
		c.SnapshotInterval = time.Second
	}
}

// A server far behind gets the file of the leader and opens it in its next life.
func TestInstall(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		w.change = short
		w.three()
		lead := w.leader()
		var off *server
		for _, m := range w.members {
			if m != lead {
				off = m
			}
		}
		off.stop()
		lives := off.boots()
		for i := range 40 {
			w.leader(off).mustPut(fmt.Sprint("k", i), "v")
			time.Sleep(100 * time.Millisecond)
		}
		off.on()
		w.until("a file and a new life", func() bool { return off.boots() >= lives+2 })
		w.leader().mustPut("after", "1")
		w.equal()
		if _, err := os.Stat(filepath.Join(off.dir, "ronbox.db.install")); !os.IsNotExist(err) {
			t.Errorf("the installed file is still there: %v", err)
		}
		if left, _ := os.ReadDir(filepath.Join(lead.dir, "cluster", "shots")); len(left) > 0 {
			t.Errorf("%d snapshots are left", len(left))
		}
		off.stop()
		off.on()
		w.equal()
	})
}

// A log that was put back from an earlier time is refused: it has forgotten what this node has
// acknowledged.
func TestOldLogIsRefused(t *testing.T) {
	bubble(t, 6, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		var m *server
		for _, o := range w.members {
			if o != lead {
				m = o
			}
		}
		w.equal()
		m.stop()
		old := filepath.Join(w.dir, "old")
		if err := os.CopyFS(old, os.DirFS(filepath.Join(m.dir, "raft"))); err != nil {
			t.Fatal(err)
		}
		m.on()
		w.leader().mustPut("second", "2")
		w.equal()
		m.stop()
		for _, tt := range []struct {
			name string
			make func(raft string) error
		}{
			{"an earlier log", func(raft string) error { return os.CopyFS(raft, os.DirFS(old)) }},
			{"none", func(raft string) error { return nil }},
		} {
			folder := filepath.Join(m.dir, "raft")
			if err := errors.Join(os.RemoveAll(folder), tt.make(folder)); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(m.path())
			if err != nil {
				t.Fatal(err)
			}
			m.on()
			<-m.done
			if err = m.refusal(); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: %v, want %v", tt.name, err, store.ErrCorrupt)
			}
			t.Log(tt.name, m.refusal())
			if after, _ := os.ReadFile(m.path()); len(after) != len(before) {
				t.Errorf("%s: the file has changed", tt.name)
			}
		}
		delete(w.members, m.id)
		lead = w.leader()
		if err := lead.now().node.Remove(t.Context(), m.id); err != nil {
			t.Fatal(err)
		}
		w.join(lead, "d") // the same server under a new id
		w.until("three voters", func() bool {
			return lead.now().node.Status(t.Context()).FailureTolerance == 1
		})
		w.equal()
	})
}

// A log that was removed, or put back from before an install, is refused from the first life on that
// has used it, even if no group has moved the place of the file since init or install. A log that
// is empty because nothing was stored is accepted.
func TestLostLogIsRefused(t *testing.T) {
	bubble(t, 23, func(t *testing.T, w *world) {
		a := w.found("a")
		fresh, err := os.ReadFile(a.path())
		if err != nil {
			t.Fatal(err)
		}
		a.on()
		w.leader()
		a.stop()
		if err = os.WriteFile(a.path(), fresh, 0o600); err != nil { // a crash before the file was bound to its log
			t.Fatal(err)
		}
		a.on()
		w.leader()
		b := w.add("b")
		b.receive(a.now().node)
		for range 3 { // nobody has sent it anything
			b.on()
			w.until("it lives", func() bool { return b.now() != nil })
			b.stop()
		}
		delete(w.members, "b")
		a.stop()
		delete(w.members, "a")
		for _, m := range []*server{a, b} {
			ms, err := store.ReadMembership(m.path())
			if err != nil || ms.Applied.Origin == "" {
				t.Fatalf("%s: %+v, %v", m.id, ms, err)
			}
			if err = os.RemoveAll(filepath.Join(m.dir, "raft")); err != nil {
				t.Fatal(err)
			}
			m.on()
			w.until("a boot", func() bool { return m.now() != nil || m.refusal() != nil })
			if err = m.refusal(); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: %v, want %v", m.id, err, store.ErrCorrupt)
			}
			m.stop()
		}
	})
}

// A member gets its vote after it was caught up for a while, unless it is a standby. A change that
// would lose the quorum is refused.
func TestMembers(t *testing.T) {
	bubble(t, 7, func(t *testing.T, w *world) {
		a := w.found("a").on()
		w.leader()
		node := a.now().node
		if err := node.MayLeaveLast(); err != nil {
			t.Errorf("alone: %v", err)
		}
		b := w.join(a, "b")
		begun := time.Now()
		s := w.add("s")
		s.receive(node)
		s.on()
		if err := node.Admit(t.Context(), "s", s.addr, true); err != nil {
			t.Fatal(err)
		}
		if got := node.Status(t.Context()); got.Members[1].Role != RoleStandby || got.FailureTolerance != 0 {
			t.Errorf("at once: %+v", got)
		}
		if err := node.MayLeaveLast(); !errors.Is(err, ErrNotAlone) {
			t.Errorf("with others: %v", err)
		}
		w.until("a vote", func() bool { return node.Status(t.Context()).Members[1].Role == RoleVoter })
		if took := time.Since(begun); took < caughtUpFor {
			t.Errorf("a vote after %v", took)
		}
		time.Sleep(10 * time.Second)
		status := node.Status(t.Context())
		for _, m := range status.Members {
			if !m.Healthy || m.Lag > 0 || m.Addr != m.ID+":1" {
				t.Errorf("%+v", m)
			}
		}
		if len(status.Members) != 3 || status.Members[2].Role != RoleStandby {
			t.Errorf("%+v", status.Members)
		}
		b.stop()
		delete(w.members, "b")
		if err := node.Remove(t.Context(), "x"); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("unknown: %v", err)
		}
		if err := node.Remove(t.Context(), "a"); !errors.Is(err, ErrQuorum) {
			t.Errorf("the last healthy voter: %v", err)
		}
		b.on()
		w.members["b"] = b
		lead := w.leader()
		for _, m := range w.members {
			if m != lead && m != s {
				if err := lead.now().node.Remove(t.Context(), m.id); err != nil {
					t.Error(err)
				}
			}
		}
		lead.mustPut("alone", "1")
	})
}

// Confirm asks a quorum. Readers that wait share a round.
func TestConfirm(t *testing.T) {
	bubble(t, 8, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		node := lead.now().node
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := node.Confirm(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.mesh.isolate(lead.addr, true)
		if err := node.Confirm(context.Background()); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("cut off: %v", err)
		}
	})
}

// Answers to messages that were sent before a round began do not count: after a pause of the leader
// they may be older than another leader.
func TestConfirmIgnoresOldAnswers(t *testing.T) {
	bubble(t, 17, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		node := lead.now().node
		var release []func()
		for _, m := range w.members {
			if m != lead {
				release = append(release, w.mesh.hold(m.addr, lead.addr))
			}
		}
		time.Sleep(250 * time.Millisecond) // heartbeats go out, their answers are held
		for _, m := range w.members {
			w.mesh.set(lead.addr, m.addr, true)
		}
		result := make(chan error, 1)
		go func() { result <- node.Confirm(context.Background()) }()
		synctest.Wait()
		for _, f := range release {
			f()
		}
		if err := <-result; !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("err = %v, want %v", err, store.ErrNotLeader)
		}
	})
}

// Entries that come while a follower stops do not fail its life.
func TestEntriesAtAStop(t *testing.T) {
	bubble(t, 21, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		var stops *life
		for _, m := range w.members {
			if m != lead {
				stops = m.now()
			}
		}
		stops.store.CloseLanes()
		lead.mustPut("k", "v")
		time.Sleep(time.Second)
		if why, err := stops.node.Reason(); why != "" || err != nil {
			t.Errorf("its life ended: %s %v", why, err)
		}
	})
}

// A node that is held votes and follows, and leaves the election to another.
func TestHold(t *testing.T) {
	bubble(t, 9, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		held := w.others(lead)[0]
		w.hold(held)
		w.leader().mustPut("k", "v")
		lead.stop()
		delete(w.members, lead.id)
		if w.leader() == held {
			t.Errorf("%s leads", held.id)
		}
		w.change = nil
		lead.on()
		w.members[lead.id] = lead
		w.equal()
	})
}

// The hold of all nodes that could lead lifts once they have heard no leader for some heartbeats.
func TestHoldOfAll(t *testing.T) {
	bubble(t, 10, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		w.hold(w.others(lead)...)
		w.leader().mustPut("k", "v")
		lead.stop()
		delete(w.members, lead.id)
		begun := time.Now()
		for time.Since(begun) < 4*time.Second {
			time.Sleep(100 * time.Millisecond)
			if m := w.leads(); m != nil {
				t.Fatalf("%s leads after %v", m.id, time.Since(begun))
			}
		}
		w.leader()
		if waited := time.Since(begun); waited > 20*time.Second {
			t.Errorf("no node led for %v", waited)
		}
		w.change = nil
		lead.on()
		w.members[lead.id] = lead
		w.equal()
	})
}

// A file that was put back from an earlier time is brought up by the log.
func TestOldFileIsBroughtUp(t *testing.T) {
	bubble(t, 13, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		var m *server
		for _, o := range w.members {
			if o != lead {
				m = o
			}
		}
		w.equal()
		m.stop()
		old, err := os.ReadFile(m.path())
		if err != nil {
			t.Fatal(err)
		}
		m.on()
		for i := range 10 {
			w.leader().mustPut(fmt.Sprint("k", i), "v")
		}
		w.equal()
		m.stop()
		if err = os.WriteFile(m.path(), old, 0o600); err != nil {
			t.Fatal(err)
		}
		lives := m.boots()
		m.on()
		w.equal()
		if m.boots() != lives+1 {
			t.Error("it got a file")
		}
	})
}

// One server of a cluster that has lost its quorum goes on alone, and gets other members again.
func TestRecovery(t *testing.T) {
	bubble(t, 14, func(t *testing.T, w *world) {
		w.three()
		w.leader().mustPut("kept", "1")
		w.equal()
		for _, m := range w.members {
			m.stop()
		}
		m := w.members["b"]
		w.members = map[string]*server{"b": m}
		c := raft.Configuration{Servers: []raft.Server{{
			Suffrage: raft.Voter, ID: "b", Address: raft.ServerAddress(m.addr),
		}}}
		ms, err := store.ReadMembership(m.path())
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Reincarnate(m.path(), store.Event{Event: "recover"}, &store.Membership{
			Index: ms.Index, Raw: raft.EncodeConfiguration(c),
		})
		if err != nil {
			t.Fatal(err)
		}
		m.on()
		w.leader().mustPut("alone", "1")
		if m.get("kept") != "1" {
			t.Error("a row is lost")
		}
		w.join(m, "d")
		w.equal()
	})
}

// A round that has begun serves no caller that comes later.
func TestRounds(t *testing.T) {
	var r rounds
	if r.take() != nil {
		t.Error("a round without callers")
	}
	first := r.join()
	if r.join() != first {
		t.Error("two callers that wait have two rounds")
	}
	if r.take() != first || r.join() == first {
		t.Error("a caller joins a round that has begun")
	}
}

// A member that knows no leader tells for how long it has heard none.
func TestOutage(t *testing.T) {
	bubble(t, 23, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		rest := w.others(lead)
		for _, m := range []*server{lead, rest[0]} {
			if silent, _, yes := m.now().node.Outage(); yes {
				t.Errorf("%s, with a leader: %v", m.id, silent)
			}
		}
		lead.stop()
		rest[0].stop()
		gone, node := time.Now(), rest[1].now().node
		w.until("an outage", func() bool { _, _, yes := node.Outage(); return yes })
		time.Sleep(10 * time.Second)
		silent, heard, yes := node.Outage()
		if passed := time.Since(gone); !yes || !heard || silent < passed || silent > passed+node.heartbeat() {
			t.Errorf("%v after %v, heard %v, outage %v", silent, passed, heard, yes)
		}
		rest[1].stop()
		rest[1].on()
		w.until("the next life", func() bool { return rest[1].now() != nil })
		node = rest[1].now().node
		if silent, heard, yes := node.Outage(); yes || heard {
			t.Errorf("at its start: %v, heard %v", silent, heard)
		}
		w.until("an outage", func() bool { _, heard, yes := node.Outage(); return yes && !heard })
	})
}
