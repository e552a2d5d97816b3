package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// wal is the log and the stable store of raft, on the disk.
type wal interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// latch stands between raft and its log. After the first error that is not clean it refuses all
// work: a later sync could report success for data that the first one lost.
//
// Raft panics if it cannot read an entry or store its term. After the boot the latch therefore ends
// the goroutine of raft that has met the error. The node is ending then.
type latch struct {
	wal    wal
	intake func(*raft.Log) (*proposal, error) // called with each command before it is stored
	check  func(entry []byte) error           // called with each command that is read
	failed func(error)                        // called once, with the first error that is not clean

	bad     atomic.Pointer[error]
	running atomic.Bool               // the boot is over
	cut     atomic.Bool               // entries were removed and none were stored since
	full    atomic.Pointer[time.Time] // when the last write found no room; nil: it did
	writes  stopwatch
}

// FirstIndex returns the first index of the log, 0 if the log is empty.
func (l *latch) FirstIndex() (uint64, error) {
	i, err := l.wal.FirstIndex()
	return i, l.read(err)
}

// LastIndex returns the last index of the log, 0 if the log is empty.
func (l *latch) LastIndex() (uint64, error) {
	i, err := l.wal.LastIndex()
	return i, l.read(err)
}

// GetLog reads an entry. A command that is not as it was proposed is an error, because the log has
// no checksum of what it does not need at its next boot.
func (l *latch) GetLog(index uint64, log *raft.Log) error {
	err := l.wal.GetLog(index, log)
	if err == nil && log.Type == raft.LogCommand && len(log.Data) > 0 {
		if bad := l.check(log.Data); bad != nil {
			err = misfit(fmt.Sprintf("entry %d of the raft log is damaged: %v", index, bad))
		}
	}
	return l.read(err)
}

// StoreLog stores an entry.
func (l *latch) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries. A withdrawn proposal among them refuses all.
func (l *latch) StoreLogs(logs []*raft.Log) error {
	if err := l.err(); err != nil {
		return err
	}
	var own *proposal
	for _, log := range logs {
		p, err := l.intake(log)
		if err != nil {
			return err
		}
		if p != nil {
			own = p
		}
	}
	end := l.writes.begin()
	err := l.wal.StoreLogs(logs)
	end()
	l.full.Store(nil)
	if err != nil && cleanLogError(err) {
		now := time.Now()
		l.full.Store(&now)
	}
	if own != nil {
		own.stored(err)
	}
	if err != nil && l.cut.Load() {
		return l.poison(err) // raft takes the removed entries for the end of its log until they are replaced
	}
	l.cut.Store(false)
	return l.written(err)
}

// DeleteRange deletes a prefix or a suffix of the log.
func (l *latch) DeleteRange(low, high uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	if high >= last { // a truncation of the prefix may come after a cut
		l.cut.Store(true)
	}
	return l.change(func() error { return l.wal.DeleteRange(low, high) })
}

// Set stores a value.
func (l *latch) Set(key, value []byte) error {
	return l.set(func() error { return l.wal.Set(key, value) })
}

// Get reads a value.
func (l *latch) Get(key []byte) ([]byte, error) {
	v, err := l.wal.Get(key)
	return v, l.read(err)
}

// SetUint64 stores a number.
func (l *latch) SetUint64(key []byte, value uint64) error {
	return l.set(func() error { return l.wal.SetUint64(key, value) })
}

// GetUint64 returns a number, or 0 if it was never set.
func (l *latch) GetUint64(key []byte) (uint64, error) {
	v, err := l.wal.GetUint64(key)
	return v, l.read(err)
}

// set stores a term, a vote or a fact of the boot. No failure is clean: the goroutine of raft that
// has met it ends.
func (l *latch) set(write func() error) error {
	err := l.change(write)
	if err != nil && l.err() == nil {
		err = l.poison(err)
	}
	return l.stop(err)
}

// change runs a write that is not one of entries.
func (l *latch) change(write func() error) error {
	if err := l.err(); err != nil {
		return err
	}
	end := l.writes.begin()
	err := write()
	end()
	return l.written(err)
}

// written returns the error of a write, and poisons the log if the error is not clean.
func (l *latch) written(err error) error {
	if err != nil && !cleanLogError(err) {
		return l.poison(err)
	}
	return err
}

// read returns the error of a read. An entry that does not exist is an answer; any other error
// poisons the log.
func (l *latch) read(err error) error {
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return l.stop(l.poison(err))
}

// stop ends the calling goroutine of raft if err is not nil and the boot is over.
func (l *latch) stop(err error) error {
	if err != nil && l.running.Load() {
		runtime.Goexit()
	}
	return err
}

// poison keeps the first error and returns it.
func (l *latch) poison(err error) error {
	err = fmt.Errorf("raft log: %w", err)
	if l.bad.CompareAndSwap(nil, &err) {
		l.failed(err)
	}
	return l.err()
}

// err returns the error that has poisoned the log.
func (l *latch) err() error {
	if err := l.bad.Load(); err != nil {
		return *err
	}
	return nil
}

// cleanLogError reports whether a write of entries has failed before anything was synced, for lack
// of room. The log then discards what it has written.
func cleanLogError(err error) bool {
	var at *fs.PathError
	if !errors.As(err, &at) || at.Op != "write" {
		return false
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// stopwatch holds since when an operation is under way. One operation runs at a time; of two that
// overlap it measures the later one.
type stopwatch struct {
	since atomic.Pointer[time.Time]
}

// begin starts the watch. The caller calls end when the operation has returned.
func (w *stopwatch) begin() (end func()) {
	now := time.Now()
	w.since.Store(&now)
	return func() { w.since.CompareAndSwap(&now, nil) }
}

// age returns how long the operation has been under way, 0 if none is.
func (w *stopwatch) age() time.Duration {
	if at := w.since.Load(); at != nil {
		return time.Since(*at)
	}
	return 0
}
