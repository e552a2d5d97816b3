package cluster

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// faultyWAL is a log whose operations fail when an error is set.
type faultyWAL struct {
	*raft.InmemStore
	write, read error
	writes      int
}

func newFaultyWAL() *faultyWAL { return &faultyWAL{InmemStore: raft.NewInmemStore()} }

func (w *faultyWAL) StoreLogs(logs []*raft.Log) error {
	w.writes++
	if w.write != nil {
		return w.write
	}
	return w.InmemStore.StoreLogs(logs)
}

func (w *faultyWAL) SetUint64(key []byte, v uint64) error {
	w.writes++
	if w.write != nil {
		return w.write
	}
	return w.InmemStore.SetUint64(key, v)
}

func (w *faultyWAL) GetLog(i uint64, l *raft.Log) error {
	if w.read != nil {
		return w.read
	}
	return w.InmemStore.GetLog(i, l)
}

func (w *faultyWAL) Close() error { return nil }

func newLatch(w wal) (l *latch, failures *int) {
	failures = new(int)
	return &latch{
		wal:    w,
		intake: func(*raft.Log) (*proposal, error) { return nil, nil },
		check:  func([]byte) error { return nil },
		failed: func(error) { *failures++ },
	}, failures
}

var (
	errFull    = &fs.PathError{Op: "write", Path: "1.wal", Err: syscall.ENOSPC}
	errNotSync = &fs.PathError{Op: "sync", Path: "1.wal", Err: syscall.ENOSPC}
	errIO      = &fs.PathError{Op: "write", Path: "1.wal", Err: syscall.EIO}
)

// After an error that is not clean nothing is written any more, even if the disk would do it.
func TestLatchHolds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		poison bool
	}{
		{"no room", errFull, false},
		{"no room at a sync", errNotSync, true},
		{"a fault of the disk", errIO, true},
		{"sealed", errors.New("segment is sealed"), true},
	} {
		w := newFaultyWAL()
		l, failures := newLatch(w)
		w.write = tt.err
		if err := l.StoreLogs([]*raft.Log{{Index: 1}}); !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if (l.full.Load() != nil) == tt.poison {
			t.Errorf("%s: full = %v", tt.name, l.full.Load())
		}
		w.write, w.writes = nil, 0
		err := l.StoreLogs([]*raft.Log{{Index: 1}})
		if (err != nil) != tt.poison || (w.writes == 0) != tt.poison || (*failures == 1) != tt.poison {
			t.Errorf("%s: then %v, %d writes, %d failures", tt.name, err, w.writes, *failures)
		}
		if err = l.SetUint64(keyTerm, 2); (err != nil) != tt.poison {
			t.Errorf("%s: the vote: %v", tt.name, err)
		}
	}
}

// Raft cannot go on if its term finds no room: the goroutine ends, and so must the life.
func TestLatchWithoutRoomForTheTerm(t *testing.T) {
	w := newFaultyWAL()
	l, failures := newLatch(w)
	w.write = errFull
	if err := l.SetUint64(keyTerm, 2); !errors.Is(err, errFull) || *failures != 1 || l.err() == nil {
		t.Errorf("err = %v, %d failures", err, *failures)
	}
}

// A write that finds no room after entries were removed is not clean: raft still believes in them.
func TestLatchAfterACut(t *testing.T) {
	w := newFaultyWAL()
	l, failures := newLatch(w)
	for i := range uint64(3) {
		if err := l.StoreLog(&raft.Log{Index: i + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteRange(1, 1); err != nil { // a truncation comes in between
		t.Fatal(err)
	}
	w.write = errFull
	if err := l.StoreLog(&raft.Log{Index: 3}); !errors.Is(err, errFull) || *failures != 1 || l.err() == nil {
		t.Errorf("err = %v, %d failures", err, *failures)
	}
}

// An entry that does not exist is an answer. Any other error of a read poisons the log, and after
// the boot it ends the goroutine of raft, which would panic.
func TestLatchReads(t *testing.T) {
	w := newFaultyWAL()
	l, failures := newLatch(w)
	var e raft.Log
	if err := l.GetLog(7, &e); !errors.Is(err, raft.ErrLogNotFound) || *failures != 0 {
		t.Errorf("no entry: %v, %d failures", err, *failures)
	}
	l.check = func([]byte) error { return store.ErrCorrupt }
	if err := l.StoreLog(&raft.Log{Index: 1, Data: []byte("changed since")}); err != nil {
		t.Fatal(err)
	}
	if err := l.GetLog(1, &e); !errors.Is(err, store.ErrCorrupt) || *failures != 1 {
		t.Errorf("a changed entry: %v, %d failures", err, *failures)
	}
	w = newFaultyWAL()
	l, failures = newLatch(w)
	w.read = errors.New("checksum")
	if err := l.GetLog(7, &e); !errors.Is(err, w.read) || *failures != 1 {
		t.Errorf("at boot: %v, %d failures", err, *failures)
	}
	l.running.Store(true)
	returned := true
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned = false
		_ = l.GetLog(7, &e)
		returned = true
	}()
	<-done
	if returned {
		t.Error("a failed read returns to raft")
	}
}

// A proposal is in no log if it was withdrawn before the log had it, or refused cleanly. If it was
// withdrawn the log does not take it later.
func TestWithdraw(t *testing.T) {
	entry := []byte{1}
	nonce := func(e []byte) (n [16]byte, ok bool) { return [16]byte{e[0]}, true }
	for _, tt := range []struct {
		name    string
		before  func(l *latch, w *faultyWAL)
		nothing bool
	}{
		{"not seen", func(*latch, *faultyWAL) {}, true},
		{"stored", func(l *latch, _ *faultyWAL) { _ = l.StoreLog(&raft.Log{Index: 1, Data: entry}) }, false},
		{"no room", func(l *latch, w *faultyWAL) {
			w.write = errFull
			_ = l.StoreLog(&raft.Log{Index: 1, Data: entry})
		}, true},
		{"a fault", func(l *latch, w *faultyWAL) {
			w.write = errIO
			_ = l.StoreLog(&raft.Log{Index: 1, Data: entry})
		}, false},
		{"another entry", func(l *latch, _ *faultyWAL) {
			_ = l.StoreLog(&raft.Log{Index: 1, Data: []byte{2}})
		}, true},
		{"of the term of another leader", func(l *latch, _ *faultyWAL) {
			if err := l.StoreLog(&raft.Log{Index: 1, Term: 1, Data: entry}); err == nil {
				t.Error("it is stored")
			}
		}, true},
	} {
		n := &Node{nonce: nonce}
		w := newFaultyWAL()
		l, _ := newLatch(w)
		l.intake = n.intake
		p := newProposal([16]byte{1}, 0)
		n.pending.Store(p)
		tt.before(l, w)
		if got := p.withdraw(); got != tt.nothing {
			t.Errorf("%s: withdrawn = %v", tt.name, got)
		}
		w.write = nil
		err := l.StoreLog(&raft.Log{Index: 2, Data: entry})
		if withdrawn := p.log.Load() == logWithdrawn; withdrawn != errors.Is(err, errWithdrawn) {
			t.Errorf("%s: stored later: %v", tt.name, err)
		}
	}
}

func TestJudgeLog(t *testing.T) {
	at := func(origin string) store.Applied {
		return store.Applied{Place: store.Place{Index: 10, Term: 3}, Origin: origin}
	}
	good := logState{first: 1, last: 12, at: 3, term: 4, server: "a", id: []byte("one")}
	unused := logState{term: 3, server: "a", id: []byte("one")}
	with := func(change func(*logState)) logState {
		s := good
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name    string
		log     logState
		applied store.Applied
		wipe    bool
		refused bool
	}{
		{"a usual boot", good, at(""), false, false},
		{"truncated up to the file", with(func(s *logState) { s.first, s.at = 11, 0 }), at(""), false, false},
		{"truncated beyond the file", with(func(s *logState) { s.first, s.at = 12, 0 }), at(""), false, true},
		{"an earlier log", with(func(s *logState) { s.last, s.at = 9, 0 }), at(""), false, true},
		{"no log", logState{}, at(""), false, true},
		{"no log after init", logState{}, at("init"), false, false},
		{"no log after an install", logState{}, at("install"), false, false},
		{"an earlier log after an install", with(func(s *logState) { s.last, s.at = 9, 0 }), at("install"), true, false},
		{"another history after an install", with(func(s *logState) { s.at = 2 }), at("install"), true, false},
		{"the same history after an install", good, at("install"), false, false},
		{"a gap after an install", with(func(s *logState) { s.first, s.at = 12, 0 }), at("install"), false, true},
		{"another history", with(func(s *logState) { s.at = 2 }), at(""), false, true},
		{"an earlier vote", with(func(s *logState) { s.term = 2 }), at(""), false, true},
		{"an earlier vote after a recovery", with(func(s *logState) { s.term, s.at = 2, 2 }), at("init"), true, false},
		{"no owner", with(func(s *logState) { s.server = "" }), at(""), false, true},
		{"of another server", with(func(s *logState) { s.server = "b" }), at(""), false, true},
		{"of another server after an install", with(func(s *logState) { s.server = "b" }), at("install"), false, true},
		{"no place", good, store.Applied{}, false, true},
	} {
		wipe, err := judgeLog(tt.log, tt.applied, nil, "a")
		if wipe != tt.wipe || errors.Is(err, store.ErrCorrupt) != tt.refused || (err != nil) != tt.refused {
			t.Errorf("%s: wipe = %v, err = %v", tt.name, wipe, err)
		}
	}
	for _, tt := range []struct {
		name    string
		log     logState
		origin  string
		refused bool
	}{
		{"a usual boot", good, "", false},
		{"no log", logState{}, "", true},
		{"no entries", unused, "", true},
		{"an earlier log", with(func(s *logState) { s.last, s.at = 9, 0 }), "", true},
		{"the log of another life", with(func(s *logState) { s.id = []byte("two") }), "", true},
		{"no log after init", logState{}, "init", true},
		{"no log after an install", logState{}, "install", true},
		{"nothing stored since init", unused, "init", false},
		{"nothing stored since an install", unused, "install", false},
		{"a vote since an install", logState{term: 9, server: "a", id: []byte("one")}, "install", false},
		{"entries since an install", with(func(s *logState) { s.first, s.at = 11, 0 }), "install", false},
		{"an earlier log after an install", with(func(s *logState) { s.last, s.at = 9, 0 }), "install", true},
		{"another history after an install", with(func(s *logState) { s.at = 2 }), "install", true},
		{"a log from before an install", with(func(s *logState) { s.id = []byte("two") }), "install", true},
		{"a log from before ids", with(func(s *logState) { s.id = nil }), "install", true},
	} {
		wipe, err := judgeLog(tt.log, at(tt.origin), []byte("one"), "a")
		if wipe || errors.Is(err, store.ErrCorrupt) != tt.refused || (err != nil) != tt.refused {
			t.Errorf("bound, %s: wipe = %v, err = %v", tt.name, wipe, err)
		}
	}
}
