package cluster

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"ronbox/engines/cluster/member"
	"ronbox/store"
)

// fill writes a stream in pieces of random length.
func fill(t *testing.T, s raft.SnapshotSink, stream []byte, rng *rand.Rand) error {
	t.Helper()
	for len(stream) > 0 {
		n := min(len(stream), 1+rng.IntN(1+rng.IntN(10_000)))
		if _, err := s.Write(stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	return s.Close()
}

// A file that is damaged, cut off or not the announced one is not installed and leaves nothing. A
// good one is installed and ends the life.
func TestSink(t *testing.T) {
	bubble(t, 15, func(t *testing.T, w *world) {
		m := w.found("a").on()
		w.leader().mustPut("k", "v")
		node := m.now().node
		shots := &snapshots{node}
		meta, r, err := shots.Open(fileID)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		if int64(len(stream)) != meta.Size {
			t.Errorf("%d bytes, announced %d", len(stream), meta.Size)
		}
		flipped := func(at int) []byte {
			out := append([]byte(nil), stream...)
			out[at] ^= 1
			return out
		}
		rng := rand.New(rand.NewPCG(15, 0))
		installed := member.At(m.dir).InstallFile()
		for _, tt := range []struct {
			name   string
			stream []byte
			index  uint64
		}{
			{"a flipped bit of the file", flipped(len(stream) - 5000), meta.Index},
			{"a flipped bit of the manifest", flipped(20), meta.Index},
			{"a manifest without end", flipped(0), meta.Index},
			{"cut off in the file", stream[:len(stream)-1], meta.Index},
			{"cut off in the manifest", stream[:100], meta.Index},
			{"cut off in the length", stream[:2], meta.Index},
			{"another place", stream, meta.Index + 1},
		} {
			s, err := shots.Create(1, tt.index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err = fill(t, s, tt.stream, rng); err == nil {
				t.Errorf("%s: installed", tt.name)
			}
			_ = s.Cancel()
			left, _ := filepath.Glob(installed + "*")
			if len(left) > 0 || node.over() {
				t.Errorf("%s: left %q, over = %v", tt.name, left, node.over())
			}
		}
		s, err := shots.Create(1, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err = fill(t, s, stream, rng); err != nil {
			t.Fatal(err)
		}
		if why, _ := node.Reason(); why != ReasonInstalled {
			t.Errorf("reason %q", why)
		}
		w.leader().mustPut("after", "1")
		if got := m.get("k"); got != "v" {
			t.Errorf("k = %q", got)
		}
		if left, _ := filepath.Glob(installed + "*"); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
}

// fakeStore follows until its errors are used up.
type fakeStore struct {
	Store
	errs  []error
	calls int
}

func (s *fakeStore) Follow(context.Context, []store.Placed) error {
	s.calls++
	if len(s.errs) == 0 {
		return nil
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

// A follower without room, or with an entry of another release, tries again, and is unfit
// meanwhile. Any other error ends its life for good.
func TestFollowerStalls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		errs  []error
		calls int
		over  bool
	}{
		{"room later", []error{store.ErrFull, store.ErrFull}, 3, false},
		{"another release", []error{store.ErrFormat}, 2, false},
		{"another history", []error{store.ErrFull, store.ErrDiverged}, 2, true},
		{"all well", nil, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeStore{errs: tt.errs}
			n := &Node{store: s, log: hclog.NewNullLogger(), ctx: t.Context(), deposed: make(chan struct{})}
			begun := time.Now()
			n.followAll([]store.Placed{{Place: store.Place{Index: 2, Term: 1}, Entry: []byte{1}}})
			if s.calls != tt.calls || n.over() != tt.over || n.stalled.Load() != nil {
				t.Errorf("%s: %d calls, over = %v, stalled = %v", tt.name, s.calls, n.over(), n.stalled.Load())
			}
			if took := time.Since(begun); took != time.Duration(tt.calls-1)*stallEvery {
				t.Errorf("%s: took %v", tt.name, took)
			}
		})
	}
}

// The folder of shots is emptied at boot.
func TestLeftShots(t *testing.T) {
	bubble(t, 16, func(t *testing.T, w *world) {
		m := w.found("a")
		left := filepath.Join(m.dir, "cluster", "shots", "1")
		part := member.At(m.dir).InstallFile() + partialSuffix
		if err := errors.Join(os.MkdirAll(left, 0o700), os.WriteFile(part, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		m.on()
		w.leader()
		for _, path := range []string{left, part} {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
}

// fullStore has no room for a copy.
type fullStore struct {
	Store
	copies atomic.Int32 // that were asked for
}

func (s *fullStore) HoldsCopy() error {
	s.copies.Add(1)
	return store.ErrFull
}

// A leader whose disk cannot take a copy of the file beside the groups that come makes none, and is
// not asked again and again.
func TestNoRoomForShot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fullStore{}
		dir := t.TempDir()
		n := &Node{store: s, ctx: t.Context(), deps: Deps{Dir: filepath.Join(dir, "raft")}}
		begun := time.Now()
		if _, _, err := (&snapshots{n}).Open(fileID); !errors.Is(err, store.ErrFull) || s.copies.Load() != 1 {
			t.Errorf("%v, %d copies", err, s.copies.Load())
		}
		if time.Since(begun) < stallEvery {
			t.Errorf("it is asked again after %v", time.Since(begun))
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}

// smallStore has room for one entry at a time, and does not know the last one.
type smallStore struct {
	Store
	at     uint64
	node   *Node
	misses int
}

func (s *smallStore) Follow(_ context.Context, es []store.Placed) error {
	switch {
	case es[0].Index > s.at+1:
		return store.ErrDiverged
	case len(es) > 1:
		return store.ErrFull
	case es[0].Index == 4:
		s.misses++
		if s.misses == 3 {
			s.node.end(ReasonHung, nil)
		}
		return store.ErrFormat
	}
	s.at = es[0].Index
	return nil
}

// Entries that find no room in one transaction are applied one by one.
func TestFollowOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{log: hclog.NewNullLogger(), ctx: t.Context(), deposed: make(chan struct{})}
		s := &smallStore{at: 1, node: n}
		n.store = s
		var run []store.Placed
		for i := uint64(2); i <= 5; i++ {
			run = append(run, store.Placed{Place: store.Place{Index: i, Term: 1}, Entry: []byte{1}})
		}
		n.followAll(run)
		if why, err := n.Reason(); s.at != 3 || s.misses != 3 || why != ReasonHung {
			t.Errorf("at %d, %d misses, %s %v", s.at, s.misses, why, err)
		}
	})
}
