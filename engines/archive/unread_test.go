package archive

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
)

// putOnly is a target whose credentials may only create objects, and that loses an answer.
type putOnly struct {
	target.Target
	lose bool
	read bool // it may be read
}

func (p *putOnly) Create(ctx context.Context, name, file string) error {
	err := p.Target.Create(ctx, name, file)
	if err == nil && p.lose {
		p.lose = false
		return fmt.Errorf("%w: the answer was lost", target.ErrUnreachable)
	}
	return err
}

func (p *putOnly) Read(ctx context.Context, name string, from, n int64) ([]byte, error) {
	if p.read {
		return p.Target.Read(ctx, name, from, n)
	}
	return nil, fmt.Errorf("%w: put only", target.ErrDenied)
}

// A lost answer of a target that may not be read does not stop the archive: a new line begins.
func TestAnswerLostUnread(t *testing.T) {
	n := made(t)
	to := &putOnly{Target: n.arc.target}
	n.arc.target = to
	n.arc.pause = func(int) time.Duration { return 0 }
	n.cfg.Keep = 0
	n.arc.Reload(n.cfg)
	n.pump()
	for range 2 { // of a log object, and of a base
		to.lose = true
		n.put("a", 1)
		n.pump()
		n.put("b", 1)
		n.pump()
		out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
		s := n.arc.Status()
		if err != nil || out.Manifest.StateHash.String() != n.hash() || s.State != StateOK || s.Local != 0 {
			t.Errorf("%+v, %v, %+v", out, err, s)
		}
		n.arc.asked.Store(true)
		to.lose = true
	}
	n.stop()
}

// A target that refused a read once is asked again after a while: that it lacks what was sent is
// noticed then.
func TestReadAgain(t *testing.T) {
	n := made(t)
	to := &putOnly{Target: n.arc.target}
	n.arc.target = to
	n.cfg.Keep = 0
	n.arc.Reload(n.cfg)
	n.pump()
	n.put("a", 1)
	n.pump()
	to.read = true
	for _, name := range n.objects() {
		if err := n.target().Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	n.put("b", 1)
	n.pump()
	for _, name := range n.objects() {
		if err := n.target().Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	n.arc.unread.Store(time.Now().UnixNano())
	n.put("c", 1)
	n.arc.rotated = time.Time{}
	if err := n.arc.pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, _ := n.arc.queue.first()
	if err := n.arc.find(t.Context(), n.arc.record.read().find(f.line)); !errors.Is(err, target.ErrChanged) {
		t.Errorf("%v", err)
	}
	n.stop()
}
