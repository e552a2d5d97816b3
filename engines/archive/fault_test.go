package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/archive/target"
	"ronbox/store"
)

// flawed is a target some of whose calls fail.
type flawed struct {
	target.Target
	create, read, list error
	creating           func() // called before each Create; may be nil
}

func (f *flawed) Create(ctx context.Context, name, file string) error {
	if f.creating != nil {
		f.creating()
	}
	if f.create != nil {
		return f.create
	}
	return f.Target.Create(ctx, name, file)
}

func (f *flawed) Read(ctx context.Context, name string, from, n int64) ([]byte, error) {
	if f.read != nil {
		return nil, f.read
	}
	return f.Target.Read(ctx, name, from, n)
}

func (f *flawed) List(ctx context.Context, prefix, after string, fn func(target.Item) bool) error {
	if f.list != nil {
		return f.list
	}
	return f.Target.List(ctx, prefix, after, fn)
}

// flaws puts a target that may fail before that of the node.
func (n *node) flaws() *flawed {
	f := &flawed{Target: n.arc.target}
	n.arc.target = f
	return f
}

// everyOther is a target of which every second call fails.
type everyOther struct {
	target.Target
	t     *testing.T
	calls int
}

func (e *everyOther) fails() error {
	if e.calls++; e.calls > 1000 {
		e.t.Fatal("it does not come to an end")
	}
	if e.calls%2 == 0 {
		return fmt.Errorf("%w: planted", target.ErrUnreachable)
	}
	return nil
}

func (e *everyOther) Create(ctx context.Context, name, file string) error {
	if err := e.fails(); err != nil {
		return err
	}
	return e.Target.Create(ctx, name, file)
}

func (e *everyOther) Read(ctx context.Context, name string, from, n int64) ([]byte, error) {
	if err := e.fails(); err != nil {
		return nil, err
	}
	return e.Target.Read(ctx, name, from, n)
}

// A target of which every second call fails takes everything.
func TestEveryOtherCallFails(t *testing.T) {
	n := made(t)
	n.arc.pause = func(int) time.Duration { return 0 }
	n.cfg.Keep = 0 // a prune reads, too
	n.arc.Reload(n.cfg)
	n.arc.target = &everyOther{Target: n.arc.target, t: t}
	for i := range 5 {
		n.put("a", i+1)
		n.pump()
	}
	n.sound()
	n.restores(0)
	n.stop()
}

// A prune that fails says so, and the state stays that of the log.
func TestPruneFails(t *testing.T) {
	n := made(t)
	n.put("a", 1)
	n.pump()
	to := n.flaws()
	for _, cause := range []error{target.ErrDenied, target.ErrUnreachable, target.ErrChanged} {
		to.list = fmt.Errorf("%w: planted", cause)
		n.arc.swept = time.Time{}
		err := n.arc.keep(t.Context())
		want := StateOK
		if cause == target.ErrChanged {
			want = StateChanged
		}
		if s := n.arc.Status(); !errors.Is(err, cause) || s.State != want || s.LastError != to.list.Error() ||
			s.Advice == "" {
			t.Errorf("%v: %+v", err, s)
		}
		if err := n.arc.keep(t.Context()); err != nil { // until the next prune is due
			t.Error(err)
		}
		if s := n.arc.Status(); s.State != want || s.LastError == "" {
			t.Errorf("%+v", s)
		}
	}
	to.list, n.arc.swept = nil, time.Time{}
	n.pump()
	if s := n.arc.Status(); s.State != StateOK || s.LastError != "" || s.Advice != "" {
		t.Errorf("%+v", s)
	}
	n.stop()
}

// A record that cannot be written keeps no archive behind once it can.
func TestRecordFails(t *testing.T) {
	n := made(t)
	n.put("a", 1)
	n.pump()
	path := n.arc.record.path
	n.arc.record.path = filepath.Join(path, "none")
	n.arc.tap.stop(reasonGap)
	if err := n.arc.keep(t.Context()); err == nil {
		t.Error("a record below a file was written")
	}
	if s := n.arc.Status(); s.State != StateBehind || s.LastError == "" || s.Advice == "" {
		t.Errorf("%+v", s)
	}
	n.arc.record.path = path
	if err := n.arc.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := n.arc.Status(); s.LastError != "" {
		t.Errorf("%+v", s)
	}
	n.stop()
}

// Nothing is written into a target that lacks what was sent: another disk, or one that was emptied.
func TestTargetEmptied(t *testing.T) {
	for _, logged := range []bool{true, false} {
		n := made(t)
		n.pump()
		if logged {
			n.put("a", 1)
			n.pump()
		}
		there := filepath.Join(n.root(), n.store.Info().NodeID)
		away := filepath.Join(t.TempDir(), "away")
		if err := os.Rename(there, away); err != nil {
			t.Fatal(err)
		}
		n.put("b", 1)
		for range 2 {
			if err := n.pumps(); !errors.Is(err, target.ErrChanged) {
				t.Errorf("%t: %v", logged, err)
			}
			if s := n.arc.Status(); s.State != StateChanged || s.Advice == "" || len(n.objects()) > 0 {
				t.Errorf("%t: %+v, %q", logged, s, n.objects())
			}
			n.stop()
			n.boot()
		}
		if err := os.Rename(away, there); err != nil {
			t.Fatal(err)
		}
		n.pump()
		n.restores(0)
		n.sound()
		if s := n.arc.Status(); s.State != StateOK {
			t.Errorf("%t: %+v", logged, s)
		}
		n.flaws().read = fmt.Errorf("%w: planted", target.ErrDenied) // it cannot tell
		n.put("c", 1)
		n.pump()
		n.stop()
	}
}

// baseFails asks for a base while the tasks run, and returns its error.
func (n *node) baseFails() error {
	n.t.Helper()
	ctx, stop := context.WithCancel(n.t.Context())
	done := make(chan error)
	go func() {
		_, err := n.arc.Base(n.t.Context(), nil)
		stop()
		done <- err
	}()
	for ctx.Err() == nil {
		_ = n.arc.keep(ctx)
		_, _ = n.arc.send(ctx)
		runtime.Gosched()
	}
	return <-done
}

// A base that is refused says why.
func TestBaseIsRefused(t *testing.T) {
	n := made(t)
	n.pump()
	n.arc.pause = func(int) time.Duration { return time.Millisecond }
	n.put("a", 1)
	to, dir := n.flaws(), n.arc.d.Dir
	to.create = fmt.Errorf("%w: planted", target.ErrFull)
	if err := n.baseFails(); !errors.Is(err, target.ErrFull) || errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	to.create = nil
	n.pump()
	n.put("a", 2)
	n.arc.d.Dir = filepath.Join(n.arc.record.path, "none")
	if err := n.baseFails(); !errors.As(err, new(*fs.PathError)) || errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	if s := n.arc.Status(); s.State != StateOK || s.LastError == "" || s.Advice == "" {
		t.Errorf("%+v", s)
	}
	n.arc.d.Dir = dir
	n.pump()
	n.arc.asked.Store(true)
	n.pump()
	if s := n.arc.Status(); s.State != StateOK || s.LastError != "" || s.BaseSeq != 2 {
		t.Errorf("%+v", s)
	}
	n.stop()
}

// A week without the target delays and refuses no command. Local files stay within their bound: the
// archive is behind, then full. Afterwards it sends what was kept, and begins a new line.
func TestWeekAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where what waits takes time, and nothing else does
		n := made(t)
		n.cfg.MaxLocal = 64 << 10
		n.arc.Reload(n.cfg)
		n.arc.pause = pauseAfter
		n.pump()
		first, away := n.arc.Status().Line, n.root()+".away"
		if err := os.Rename(n.root(), away); err != nil {
			t.Fatal(err)
		}
		var states []State
		kept := uint64(0)
		for hour := range 7 * 24 {
			for i := range 2 {
				began := time.Now()
				seq := n.put(string(rune('a'+i)), 20+hour)
				if took := time.Since(began); took > 0 {
					t.Errorf("a command took %s", took)
				}
				if n.arc.tap.reason() == "" {
					kept = seq
				}
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			n.arc.rotated = time.Time{}
			err := errors.Join(n.arc.pack(ctx), n.arc.keep(ctx))
			if hour > 0 && errors.Is(err, target.ErrUnreachable) {
				err = nil // of a prune
			}
			if _, away := n.arc.send(ctx); err != nil || !errors.Is(away, context.DeadlineExceeded) {
				t.Error(err, away)
			}
			stop()
			s := n.arc.Status()
			if s.Local > n.cfg.MaxLocal.Bytes() || s.LastError == "" || s.Line != first {
				t.Fatalf("hour %d: %+v", hour, s)
			}
			if len(states) == 0 || states[len(states)-1] != s.State {
				states = append(states, s.State)
			}
		}
		if len(states) != 2 || states[0] != StateBehind || states[1] != StateFull {
			t.Errorf("%v", states)
		}
		if err := os.Rename(away, n.root()); err != nil {
			t.Fatal(err)
		}
		n.pump()
		last := n.put("last", 1)
		n.pump()
		if s := n.arc.Status(); s.State != StateOK || s.Line == first || s.Local != 0 {
			t.Errorf("%+v", s)
		}
		for seq := range n.states {
			if seq > kept && seq != last || seq%32 != 0 && seq != kept && seq != last {
				delete(n.states, seq) // it was not captured, or is one of many
			}
		}
		n.restores(0)
		if c := n.sound(); c.Lines != 2 || kept < 100 {
			t.Errorf("%+v, %d commands were kept", c, kept)
		}
		n.stop()
	})
}
