package period_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
)

// TestTooYoung asks for a closing of older records than there are. The error names the time that
// closes all that can be closed.
func TestTooYoung(t *testing.T) {
	n := newNode(t, 6)
	n.pay(20)
	c, stop := n.closer(period.Config{})
	defer stop()
	begun := n.clock.Now().Add(-24 * time.Hour)
	n.clock.Advance(time.Hour)
	var young *period.AgeError
	_, err := c.Plan(t.Context(), period.Ask{Before: begun})
	if !errors.As(err, &young) || !errors.Is(err, period.ErrNothing) {
		t.Fatalf("before all records: %v", err)
	}
	at := time.Unix(0, young.Before)
	all, err := c.Plan(t.Context(), period.Ask{Before: n.clock.Now()})
	n.must(err)
	if p, err := c.Plan(t.Context(), period.Ask{Before: at}); err != nil || p != all {
		t.Errorf("before %s: %+v, %v, want %+v", at, p, err, all)
	}
	if p, err := c.Plan(t.Context(), period.Ask{Before: at.Add(-1)}); err == nil && p.ToSeq >= all.ToSeq {
		t.Errorf("an earlier time closes as much: %+v", p)
	}
}

// TestFileOfAnother begins no closing whose file is there and of another history, unless only the
// records can tell.
func TestFileOfAnother(t *testing.T) {
	ask := func(n *node, dir string) (period.Plan, error) {
		n.pay(5)
		n.clock.Advance(time.Hour)
		c, stop := n.closer(period.Config{Dir: dir})
		defer stop()
		p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
		if err != nil {
			return p, err
		}
		n.until(func() bool { return n.horizon().Period == p.Period || c.State().State == "failed" })
		if s := c.State(); s.State == "failed" {
			return p, s.Err
		}
		n.await(c, "idle")
		return p, nil
	}
	one, other, theirs := newNode(t, 7), newNode(t, 8), t.TempDir()
	for range 2 {
		_, err := ask(other, theirs)
		one.must(err)
	}
	var differs *period.DiffersError
	p, err := ask(one, theirs)
	path := filepath.Join(theirs, record.PeriodFile(1))
	if !errors.As(err, &differs) || differs.Path != path || p.ToSeq == 0 {
		t.Errorf("over the first file of another: %+v, %v", p, err)
	}
	own := t.TempDir()
	_, err = ask(one, own)
	one.must(err)
	raw, err := os.ReadFile(filepath.Join(theirs, record.PeriodFile(2)))
	one.must(err)
	path = filepath.Join(own, record.PeriodFile(2))
	one.pay(5)
	for doc, content := range map[string][]byte{"the second file of another": raw, "no file of a period": []byte("else"),
		"an empty file": nil, "a cut one": raw[:20]} {
		one.must(os.WriteFile(path, content, 0o600))
		c, stop := one.closer(period.Config{Dir: own})
		one.clock.Advance(time.Hour)
		_, err := c.Plan(t.Context(), period.Ask{Before: one.clock.Now()})
		if !errors.As(err, &differs) || differs.Path != path {
			t.Errorf("over %s: %v", doc, err)
		}
		stop()
	}
	one.must(os.Remove(path))
	_, err = ask(one, own)
	one.must(err)
}

// TestReadOnlyFolder names the line of a unit that lets the node write.
func TestReadOnlyFolder(t *testing.T) {
	err := period.Writable(&fs.PathError{Op: "open", Path: "/p/x", Err: syscall.EROFS}, "/p")
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "ReadWritePaths=/p ") {
		t.Error(err)
	}
	full := &fs.PathError{Op: "open", Path: "/p/x", Err: syscall.ENOSPC}
	if err := period.Writable(full, "/p"); err != error(full) {
		t.Error(err)
	}
}
