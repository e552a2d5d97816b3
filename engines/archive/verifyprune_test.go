package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
)

// baseDaily makes bases a day apart, of several parts each, and log objects between them.
func (n *node) baseDaily(bases int) {
	n.t.Helper()
	for i := range 6 {
		n.put(string(rune('a'+i)), 300_000)
	}
	for i := range bases {
		n.put("x", i+1)
		n.pump()
		n.put("y", i+1)
		n.arc.asked.Store(true)
		n.pump()
		n.aged(day)
	}
}

// killedAt is a target whose user is killed at a call of Delete.
type killedAt struct {
	target.Target
	left int // calls before it
}

func (k *killedAt) Delete(ctx context.Context, name string) error {
	if k.left--; k.left < 0 {
		return fmt.Errorf("%w: planted", target.ErrUnreachable)
	}
	return k.Target.Delete(ctx, name)
}

// prune prunes by the objects that a has listed, and keeps no time.
func prune(t *testing.T, a *history.Archive) (objects int, err error) {
	t.Helper()
	objects, _, err = a.Prune(t.Context(), history.Pruning{Now: time.Now()})
	return objects, err
}

// A prune that was killed anywhere leaves a sound archive, also if no node ever goes on with it: of
// the begin of a line, and of a whole one.
func TestVerifyAfterAKilledPrune(t *testing.T) {
	for _, lines := range []int{1, 2} {
		n := made(t)
		n.baseDaily(3)
		if lines == 2 {
			n.arc.tap.stop(reasonGap)
			n.baseDaily(2)
		}
		n.stop()
		for killed := false; ; killed = true {
			to := &killedAt{Target: n.target(), left: 1}
			a, err := history.Open(t.Context(), to, "")
			if err != nil {
				t.Fatal(err)
			}
			_, err = prune(t, a)
			c := n.sound()
			if err == nil && killed && c.Lines == 1 {
				break
			}
			if !errors.Is(err, target.ErrUnreachable) || c.Bases < 2 {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		n.restores(n.store.Info().Seq)
	}
}

// Nor is it a prune if no complete base is left.
func TestVerifyFirstPartsMissing(t *testing.T) {
	n := made(t)
	n.baseDaily(2)
	n.stop()
	for _, name := range n.objects() {
		if strings.HasSuffix(name, "/00000") {
			if err := n.target().Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c, err := n.history().Verify(t.Context(), n.options()); err != nil || len(c.Findings) != 4 {
		t.Errorf("%+v, %v", c, err)
	}
}
