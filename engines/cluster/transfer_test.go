package cluster

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/store"
)

// unfitIf makes the nodes unfit whose ids the returned map holds.
func unfitIf(w *world) (unfit *sync.Map) {
	unfit = &sync.Map{}
	w.change = func(n *Node) {
		n.deps.Fit = func() (string, bool) {
			if _, is := unfit.Load(n.deps.Self.ServerID()); is {
				return "by the test", false
			}
			return "", false
		}
	}
	return unfit
}

// Writes go on while the leadership goes round. What was acknowledged is there, and what was
// refused is not.
func TestTransfer(t *testing.T) {
	bubble(t, 40, func(t *testing.T, w *world) {
		w.three()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan map[string]bool, 1)
		go func() {
			done := map[string]bool{}
			defer func() { ended <- done }()
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(time.Millisecond)
				lead := w.leads()
				if lead == nil {
					continue
				}
				key := strconv.Itoa(i)
				var nothing *store.NothingError
				switch err := lead.put(key, "1"); {
				case err == nil:
					done[key] = true
				case errors.As(err, &nothing):
					done[key] = false
				}
			}
		}()
		for range 20 {
			lead := w.leader()
			node := lead.now().node
			at, err := node.Transfer(t.Context(), "", ReasonAsked)
			if err != nil || at.From != lead.id || at.Took > time.Second {
				t.Fatalf("Transfer = %+v, err = %v", at, err)
			}
			if why, _ := node.Reason(); why != ReasonAsked {
				t.Errorf("the life has ended for the reason %q", why)
			}
			if next := w.leader(); next.id != at.To {
				t.Errorf("%s leads, want %s", next.id, at.To)
			}
			w.until("the old leader answers", func() bool {
				l := w.leads()
				return l != nil && l.now().node.Status(t.Context()).FailureTolerance == 1
			})
		}
		stop()
		for key, is := range <-ended {
			if got := w.leader().get(key); (got == "1") != is {
				t.Errorf("row %s: %q, acknowledged: %v", key, got, is)
			}
		}
		w.equal()
	})
}

// A transfer names why no other voter can lead, and the leader stays.
func TestTransferRefuses(t *testing.T) {
	bubble(t, 41, func(t *testing.T, w *world) {
		unfit := unfitIf(w)
		a := w.found("a").on()
		w.leader()
		refuses := func(to, want string) {
			t.Helper()
			_, err := a.now().node.Transfer(t.Context(), to, ReasonAsked)
			if !errors.Is(err, ErrNoTarget) || !strings.Contains(err.Error(), want) {
				t.Errorf("Transfer to %q: %v, want %q", to, err, want)
			}
		}
		refuses("", "only voter")
		b := w.join(a, "b")
		d := w.add("d")
		d.receive(a.now().node)
		d.on()
		if err := a.now().node.Admit(t.Context(), "d", d.addr, true); err != nil {
			t.Fatal(err)
		}
		w.until("two voters", func() bool { return a.now().node.Status(t.Context()).Voters == 2 })
		refuses("a", "leads already")
		refuses("d", "has no vote")
		refuses("z", "no member")
		unfit.Store("b", true)
		w.until("b is unfit", func() bool { return b.now().node.Unfit() != "" })
		refuses("", "b is unfit: by the test")
		refuses("b", "b is unfit: by the test")
		unfit.Clear()
		if _, err := b.now().node.Transfer(t.Context(), "", ReasonAsked); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("Transfer at a node that does not lead: %v", err)
		}
		a.mustPut("after", "1")
	})
}

// A target that does not answer leaves the leadership where it is, and no group waits for ever.
func TestTransferFails(t *testing.T) {
	bubble(t, 42, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		to := w.others(lead)[0]
		node := lead.now().node
		node.deps.Resign = func(_ context.Context, _ string, _ Reason, failed error) {
			w.mesh.isolate(to.addr, failed == nil)
		}
		result := make(chan error, 1)
		go func() {
			_, err := node.Transfer(t.Context(), to.id, ReasonAsked)
			result <- err
		}()
		if err := <-result; !errors.Is(err, ErrNotTransferred) {
			t.Errorf("Transfer: %v", err)
		}
		lead.mustPut("after", "1")
		w.equal()
	})
}

// While the leadership is transferred, no member is admitted or removed.
func TestTransferExcludesChanges(t *testing.T) {
	bubble(t, 43, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		node := lead.now().node
		var during error
		node.deps.Resign = func(ctx context.Context, _ string, _ Reason, _ error) {
			during = node.Admit(ctx, "z", "z:1", false)
		}
		if _, err := node.Transfer(t.Context(), "", ReasonDrain); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(during, store.ErrBusy) {
			t.Errorf("Admit: %v, want ErrBusy", during)
		}
	})
}

// A transfer that comes while another one ends is refused, and leaves nothing behind.
func TestTransferWhileOneEnds(t *testing.T) {
	bubble(t, 46, func(t *testing.T, w *world) {
		w.three()
		node := w.leader().now().node
		for _, to := range []string{"", "z"} { // the same target, and another one
			ending, _, err := node.transfers.Join("", struct{}{}) // its run has returned, say
			if err != nil {
				t.Fatal(err)
			}
			if _, err := node.Transfer(t.Context(), to, ReasonAsked); !errors.Is(err, store.ErrBusy) {
				t.Errorf("Transfer to %q: %v, want ErrBusy", to, err)
			}
			ending.Answer(Transferred{})
		}
		if _, err := node.Transfer(t.Context(), "", ReasonAsked); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

// A leader that becomes unfit hands over within 3 s. If all are unfit it stays, and no election
// disturbs it.
func TestUnfitLeaderResigns(t *testing.T) {
	bubble(t, 44, func(t *testing.T, w *world) {
		unfit := unfitIf(w)
		w.three()
		lead := w.leader()
		node := lead.now().node
		unfit.Store(lead.id, true)
		begun := time.Now()
		<-node.Deposed()
		if why, _ := node.Reason(); why != ReasonUnfit || time.Since(begun) > 3*time.Second {
			t.Errorf("its life ends after %v for the reason %q", time.Since(begun), why)
		}
		next := w.leader()
		if next == lead {
			t.Error("the unfit leader leads again")
		}
		for _, m := range w.members {
			unfit.Store(m.id, true)
		}
		node = next.now().node
		term := node.raft.CurrentTerm()
		time.Sleep(10 * time.Minute)
		if w.leads() != next || node.raft.CurrentTerm() > term+1 {
			t.Errorf("%v leads in term %d, want %s in %d", w.leads(), node.raft.CurrentTerm(), next.id, term)
		}
		next.mustPut("after", "1")
	})
}

// A target that stops at any moment of a transfer leaves a leader that serves.
func TestTransferTargetStops(t *testing.T) {
	bubble(t, 45, func(t *testing.T, w *world) {
		w.three()
		for i := range 10 {
			lead := w.leader()
			to := w.others(lead)[0]
			node := lead.now().node
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				time.Sleep(time.Duration(i) * 300 * time.Microsecond)
				to.stop()
			}()
			w.mesh.mu.Lock()
			w.mesh.delay = time.Millisecond
			w.mesh.mu.Unlock()
			_, err := node.Transfer(t.Context(), to.id, ReasonAsked)
			<-stopped
			w.leader().mustPut("after "+strconv.Itoa(i), "1")
			to.on()
			t.Log(err)
			w.until("all answer", func() bool {
				l := w.leads()
				return l != nil && l.now().node.Status(t.Context()).FailureTolerance == 1
			})
		}
		w.equal()
	})
}
