package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// stuckWAL is a log whose writes of entries hang while gate is set, or fail.
type stuckWAL struct {
	wal
	mu   sync.Mutex
	gate chan struct{} // nil: open; guarded by mu
	err  error         // guarded by mu
}

func (w *stuckWAL) StoreLogs(logs []*raft.Log) error {
	w.mu.Lock()
	gate, err := w.gate, w.err
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if err != nil {
		return err
	}
	return w.wal.StoreLogs(logs)
}

func (w *stuckWAL) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// stick hangs all writes until release is called.
func (w *stuckWAL) stick() (release func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = gate
	return func() {
		w.mu.Lock()
		w.gate = nil
		w.mu.Unlock()
		close(gate)
	}
}

// stickable wraps the log of each node, and returns that of the current life of a server.
func stickable(w *world) func(m *server) *stuckWAL {
	var mu sync.Mutex
	all := map[string]*stuckWAL{}
	w.change = func(n *Node) {
		n.wrap = func(inner wal) wal {
			s := &stuckWAL{wal: inner}
			mu.Lock()
			defer mu.Unlock()
			all[n.deps.Self.ServerID()] = s
			return s
		}
	}
	return func(m *server) *stuckWAL {
		mu.Lock()
		defer mu.Unlock()
		return all[m.id]
	}
}

// A leader whose log hangs ends its life after 5 s, although its heartbeats go on, and another one
// leads.
func TestHungLogOfLeader(t *testing.T) {
	bubble(t, 10, func(t *testing.T, w *world) {
		logOf := stickable(w)
		w.three()
		lead := w.leader()
		node := lead.now().node
		release := logOf(lead).stick()
		result := make(chan error, 1)
		begun := time.Now()
		go func() { result <- lead.put("hung", "1") }()
		<-node.Deposed()
		if took := time.Since(begun); took < hungAfter || took > 2*hungAfter {
			t.Errorf("its life ends after %v", took)
		}
		if why, _ := node.Reason(); why != ReasonHung {
			t.Errorf("reason %s", why)
		}
		release()
		if err := <-result; err != nil && !errors.Is(err, store.ErrUnknown) {
			t.Errorf("the command: %v", err)
		}
		w.leader().mustPut("after", "1")
		w.equal()
	})
}

// A log that fails ends the life for good. The outcome of the command is unknown. The others go on.
func TestFailedLogOfLeader(t *testing.T) {
	for name, fault := range map[string]error{"dirty": errIO, "clean": errFull} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 11, func(t *testing.T, w *world) {
				logOf := stickable(w)
				w.three()
				lead := w.leader()
				node := lead.now().node
				logOf(lead).fail(fault)
				err := lead.put("lost", "1")
				want := ReasonFailed
				if fault == errFull {
					want = ReasonLost
				}
				if errors.Is(err, store.ErrUnknown) != (fault == errIO) || err == nil {
					t.Errorf("the command: %v", err)
				}
				<-node.Deposed()
				if why, cause := node.Reason(); why != want {
					t.Errorf("reason %s, %v", why, cause)
				}
				w.leader().mustPut("after", "1")
				w.equal()
			})
		})
	}
}

// A node without room for its log votes, and does not stand for election.
func TestFullLogDoesNotStand(t *testing.T) {
	bubble(t, 12, func(t *testing.T, w *world) {
		logOf := stickable(w)
		w.three()
		lead := w.leader()
		var full, other *server
		for _, m := range w.members {
			switch {
			case m == lead:
			case full == nil:
				full = m
			default:
				other = m
			}
		}
		logOf(full).fail(errFull)
		lead.mustPut("k", "v")
		w.until("it is unfit", func() bool { return full.now().node.unfit() != "" })
		time.Sleep(2 * watchEvery)
		w.mesh.isolate(lead.addr, true)
		w.until("the other one is elected", func() bool { return other.now().node.reign.Load() != nil })
		logOf(full).fail(nil)
		if got := w.leader(lead); got != other {
			t.Errorf("%s leads, want %s", got.id, other.id)
		}
		w.mesh.heal()
		w.until("it is fit", func() bool { return full.now().node.unfit() == "" })
		w.equal()
	})
}

// Whatever the network does, what was acknowledged is there once it heals, what was refused is not,
// and all have the same rows.
func TestNemesis(t *testing.T) {
	for seed := range nemesisSeeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, uint64(seed), func(t *testing.T, w *world) {
				if seed%2 == 1 {
					w.change = short
				}
				w.three()
				nemesis(t, w, rand.New(rand.NewPCG(uint64(seed), 2)), 30*time.Second)
			})
		})
	}
}

// nemesisSeeds returns the number of seeds. SEEDS sets it.
func nemesisSeeds() int {
	if n, err := strconv.Atoi(os.Getenv("SEEDS")); err == nil {
		return n
	}
	return 8
}

// outcome is the result of a command as its client sees it.
type outcome int

const (
	done outcome = iota
	refused
	unknown
)

// nemesis writes for a while under faults, heals, and checks.
func nemesis(t *testing.T, w *world, rng *rand.Rand, within time.Duration) {
	ctx, stop := context.WithTimeout(context.Background(), within)
	defer stop()
	w.mesh.mu.Lock()
	w.mesh.delay = 20 * time.Millisecond
	w.mesh.reset = 0.005
	w.mesh.mu.Unlock()
	var mu sync.Mutex
	results := map[string]outcome{}
	var clients sync.WaitGroup
	last := "" // a key that was acknowledged
	reads := 0
	read := func(m *server) {
		l := m.now()
		mu.Lock()
		want := last
		mu.Unlock()
		if l == nil || want == "" {
			return
		}
		var there bool
		err := l.store.View(ctx, func(r store.Reader) error {
			_, there = rows.Get(r, want)
			return nil
		})
		if err != nil || l.node.Confirm(ctx) != nil {
			return
		}
		mu.Lock()
		reads++
		mu.Unlock()
		if !there {
			t.Errorf("%s: a confirmed read lacks %s", m.id, want)
		}
	}
	for _, m := range w.members {
		clients.Go(func() {
			for ctx.Err() == nil {
				read(m)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for _, m := range w.members {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("%s-%d", m.id, i)
				err := m.put(key, "v")
				mu.Lock()
				switch {
				case err == nil:
					results[key] = done
					last = key
				case errors.Is(err, store.ErrUnknown):
					results[key] = unknown
				case errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrClosed):
					results[key] = refused
				default:
					results[key] = unknown
				}
				mu.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	ids := slices.Sorted(maps.Keys(w.members))
	for ctx.Err() == nil {
		m := w.members[ids[rng.IntN(len(ids))]]
		if lead := w.leads(); lead != nil && rng.IntN(2) == 0 {
			m = lead
		}
		other := w.members[ids[rng.IntN(len(ids))]]
		switch rng.IntN(4) {
		case 0:
			w.mesh.isolate(m.addr, true)
		case 1:
			w.mesh.set(m.addr, other.addr, true)
		case 2:
			m.stop()
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			m.on()
		}
		time.Sleep(time.Duration(500+rng.IntN(4000)) * time.Millisecond)
		w.mesh.heal()
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
	}
	clients.Wait()
	w.mesh.mu.Lock()
	w.mesh.delay, w.mesh.reset = 0, 0
	w.mesh.mu.Unlock()
	w.leader().mustPut("end", "v")
	w.equal()
	count := map[outcome]int{}
	for _, m := range w.members {
		for key, r := range results {
			count[r]++
			has := m.get(key) != ""
			if r == done && !has || r == refused && has {
				t.Errorf("%s: %s: outcome %d, there = %v", m.id, key, r, has)
			}
		}
	}
	t.Logf("%d done, %d refused, %d unknown, %d reads", count[done]/3, count[refused]/3, count[unknown]/3, reads)
	if count[done] == 0 || reads == 0 {
		t.Error("nothing was done or read")
	}
}

// The judgement of the node's own fitness may read a disk that hangs. The watchdog goes on.
func TestWatchdogReadsNoDisk(t *testing.T) {
	bubble(t, 25, func(t *testing.T, w *world) {
		logOf := stickable(w)
		stick := w.change
		hung := make(chan struct{})
		release := sync.OnceFunc(func() { close(hung) })
		defer release()
		var hangs atomic.Bool
		w.change = func(n *Node) {
			stick(n)
			n.deps.Fit = func() (string, bool) {
				if hangs.Load() {
					<-hung
				}
				return "", false
			}
		}
		w.three()
		lead := w.leader()
		node := lead.now().node
		hangs.Store(true)
		free := logOf(lead).stick()
		begun := time.Now()
		go func() { _ = lead.put("hung", "1") }()
		select {
		case <-node.Deposed():
		case <-time.After(2 * hungAfter):
			t.Errorf("its life goes on after %v", time.Since(begun))
		}
		hangs.Store(false)
		release()
		free()
		w.leader().mustPut("after", "1")
	})
}
