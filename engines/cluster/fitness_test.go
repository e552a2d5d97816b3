package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// fullWAL is a log without room while full is set.
type fullWAL struct {
	wal
	full *atomic.Bool
}

func (w fullWAL) StoreLogs(logs []*raft.Log) error {
	if w.full.Load() {
		return errFull
	}
	return w.wal.StoreLogs(logs)
}

// No node has found room for its log. Once they have room, one of them leads, although none was
// written to.
func TestFullLogOfAll(t *testing.T) {
	bubble(t, 30, func(t *testing.T, w *world) {
		var full atomic.Bool
		w.change = func(n *Node) {
			n.wrap = func(inner wal) wal { return fullWAL{inner, &full} }
		}
		w.three()
		full.Store(true)
		if err := w.leader().put("lost", "1"); err == nil {
			t.Error("a command without a log")
		}
		w.until("all are unfit", func() bool {
			for _, m := range w.members {
				if l := m.now(); l == nil || l.node.Leads() || l.node.unfit() == "" {
					return false
				}
			}
			return true
		})
		full.Store(false)
		w.leader().mustPut("after", "1")
		w.equal()
	})
}

// The files of all nodes are full. One of them leads nevertheless: rows must be read and deleted.
func TestFullFileOfAll(t *testing.T) {
	bubble(t, 31, func(t *testing.T, w *world) {
		var full atomic.Bool
		w.change = func(n *Node) {
			n.deps.Fit = func() (string, bool) {
				if full.Load() {
					return "the file is full", false
				}
				return "", false
			}
		}
		w.three()
		full.Store(true)
		time.Sleep(2 * watchEvery)
		lead := w.leader()
		lead.stop()
		lead.on()
		w.leader().mustPut("after", "1")
		w.equal()
	})
}

// stalling is a store that is elected and does not know an entry.
type stalling struct {
	Store
	n     *Node
	stage *atomic.Int32
}

const (
	stallOff    int32 = iota
	stallChosen       // the entry waits until the node is elected
	stallOn
)

func (s stalling) Follow(ctx context.Context, es []store.Placed) error {
	if es[len(es)-1].Entry == nil {
		return s.Store.Follow(ctx, es)
	}
	for s.stage.Load() == stallChosen {
		if s.n.reign.Load() != nil {
			s.stage.Store(stallOn)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s.stage.Load() == stallOn {
		return store.ErrFormat
	}
	return s.Store.Follow(ctx, es)
}

// A node that is elected and cannot take an entry of the earlier leader makes way for another one.
func TestElectedStalls(t *testing.T) {
	bubble(t, 32, func(t *testing.T, w *world) {
		var stage atomic.Int32
		var unfit atomic.Value
		unfit.Store("")
		w.change = func(n *Node) {
			n.deps.Fit = func() (string, bool) {
				if unfit.Load() == n.deps.Self.ServerID() {
					return "by the test", true
				}
				return "", false
			}
		}
		var old atomic.Value
		old.Store("")
		w.faults = func(n *Node, s Store) Store {
			if n.deps.Self.ServerID() == old.Load() {
				return stalling{s, n, &stage}
			}
			return s
		}
		w.three()
		lead := w.leader()
		rest := w.others(lead)
		x, y := rest[0], rest[1]
		old.Store(x.id)
		x.stop()
		x.on()
		w.until("it is back", func() bool { return x.get("first") != "" })
		unfit.Store(y.id)
		time.Sleep(2 * watchEvery)
		stage.Store(stallChosen)
		lead.mustPut("k", "v")
		time.Sleep(200 * time.Millisecond)
		lead.stop()
		w.until("it is elected", func() bool { return stage.Load() == stallOn })
		unfit.Store("")
		if got := w.leader(); got != y {
			t.Errorf("%s leads", got.id)
		}
		y.mustPut("after", "1")
		stage.Store(stallOff)
		lead.on()
		w.equal()
	})
}

// A node that stops, and was elected before its raft has ended, does not lead with the state that its
// file had when the store closed.
func TestElectedAtAStop(t *testing.T) {
	bubble(t, 34, func(t *testing.T, w *world) {
		var unfit atomic.Value
		unfit.Store("")
		w.change = func(n *Node) {
			n.deps.Fit = func() (string, bool) {
				if unfit.Load() == n.deps.Self.ServerID() {
					return "by the test", true
				}
				return "", false
			}
		}
		w.three()
		lead := w.leader()
		rest := w.others(lead)
		x, y := rest[0], rest[1]
		unfit.Store(y.id)
		time.Sleep(2 * watchEvery)
		x.now().store.CloseLanes()
		lead.mustPut("k", "v")
		time.Sleep(200 * time.Millisecond)
		lead.stop()
		time.Sleep(20 * time.Second)
		if l := x.now(); l != nil && l.node.Leads() && x.get("k") == "" {
			t.Errorf("%s leads without a row that was acknowledged", x.id)
		}
		unfit.Store("")
		if got := w.leader(); got.get("k") != "v" {
			t.Errorf("%s leads without a row that was acknowledged", got.id)
		}
		lead.on()
	})
}

// The time of a boot is not one without a leader: the others are heard first.
func TestSlowBoot(t *testing.T) {
	bubble(t, 35, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		for _, m := range w.members {
			m.stop()
		}
		w.change = func(n *Node) {
			n.deps.Hold = true
			n.begun = n.begun.Add(-time.Minute)
		}
		lead.on()
		w.until("it lives", func() bool { return lead.now() != nil })
		if why := lead.now().node.unfit(); why == "" {
			t.Error("it stands at once")
		}
		for _, m := range w.others(lead) {
			m.on()
		}
	})
}
