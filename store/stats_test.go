package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A quantile is never below the number that a sorted list has there, and at most a fifth above.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h histogram
		all := rapid.SliceOfN(rapid.Int64Range(0, math.MaxInt64), 1, 200).Draw(t, "numbers")
		for _, v := range all {
			h.add(v)
		}
		slices.Sort(all)
		q := h.quantiles()
		for share, got := range map[float64]uint64{.5: q.P50, .99: q.P99, 1: q.Max} {
			want := uint64(all[int(math.Ceil(share*float64(len(all))))-1])
			if got < want || got-want > want/4 {
				t.Fatalf("at %g of %v: %d, want %d", share, all, got, want)
			}
		}
		if q.Count != uint64(len(all)) {
			t.Fatalf("counted %d of %d", q.Count, len(all))
		}
	})
	var none histogram
	if none.quantiles() != (Quantiles{}) {
		t.Errorf("of nothing: %+v", none.quantiles())
	}
	none.add(-1)
	if q := none.quantiles(); q.Max != 0 || q.Count != 1 {
		t.Errorf("of a negative number: %+v", q)
	}
	for v := range uint64(5000) {
		if s := slot(v); upper(s) < v || s > 0 && upper(s-1) >= v {
			t.Errorf("%d is in slot %d, up to %d", v, s, upper(s))
		}
	}
}

// Since counts only the commits after the earlier result.
func TestCommitTimesSince(t *testing.T) {
	var h histogram
	times := func() CommitTimes { return CommitTimes{h.counts()} }
	h.add(1 << 40)
	earlier := times()
	if q := earlier.Since(earlier); q != (Quantiles{}) {
		t.Errorf("nothing since: %+v", q)
	}
	h.add(1)
	h.add(3)
	if q := times().Since(earlier); q != (Quantiles{Count: 2, P50: 1, P99: 3, Max: 3}) {
		t.Errorf("since: %+v", q)
	}
}

func TestStats(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	for i := range 100 {
		mustCommit(r, put{Key: fmt.Sprintf("%03d", i), Value: strings.Repeat("v", 1000)})
	}
	var st Stats
	if err := r.View(t.Context(), func(Reader) (err error) {
		st, err = r.Stats(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if st.Groups != 100 || st.Commands != 100 || st.Commit.P50 == 0 || st.Commit.P99 < st.Commit.P50 ||
		st.Sync.P50 == 0 ||
		st.Batch.P99 != 1 {
		t.Errorf("commits: %+v", st)
	}
	if st.Bytes != r.Bytes() || st.MaxBytes != DefaultConfig().MaxBytes.Bytes() ||
		st.FreePages+st.PendingPages == 0 || st.Readers != 1 ||
		st.OldestReader <= 0 || st.DiskFree <= 0 || st.Full ||
		st.UsedBytes < 100*1000 ||
		st.UsedBytes > st.Bytes {
		t.Errorf("file: %+v", st)
	}
	byName := map[string]BucketStats{}
	for _, b := range st.Buckets {
		byName[b.Name] = b
	}
	if b := byName["test/rows"]; b.Rows != 100 || b.Class != Truth || b.Depth != 2 || b.Bytes < 100*1000 {
		t.Errorf("%+v", b)
	}
	if b := byName["other/rows"]; b.Rows != 0 || len(byName) != 8 {
		t.Errorf("%+v of %d", b, len(byName))
	}
	r.stop()
	if _, err := r.Stats(t.Context()); err == nil {
		t.Error("stats of a closed store")
	}
	off, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	cold, err := off.Stats(t.Context())
	if err != nil || len(cold.Buckets) != len(st.Buckets) || cold.Groups != 0 || cold.Bytes != st.Bytes ||
		cold.FreePages == 0 {
		t.Errorf("%+v, %v", cold, err)
	}
	if err := off.Close(); err != nil {
		t.Error(err)
	}
}

// Stats runs one walk over the file at a time. A concurrent call returns an error, and an error
// does not block later calls.
func TestStatsOneAtATime(t *testing.T) {
	r := open(t, newFile(t))
	r.counting.Store(true)
	if _, err := r.Stats(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("beside another: %v", err)
	}
	r.counting.Store(false)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Stats(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := r.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	r.stop()
}

// What was not committed does not count as committed.
func TestStatsOfARefusedCommit(t *testing.T) {
	r := open(t, newFile(t))
	file := fileOf(t, r.db)
	hookWrites(t, r.db, noRoom)
	if _, err := Commit(t.Context(), r.Store, Control, put{Key: "k"}); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	hookWrites(t, r.db, file.WriteAt)
	if st, err := r.Stats(t.Context()); err != nil || st.Groups != 0 || st.Commands != 0 || !st.Full {
		t.Errorf("%+v, %v", st, err)
	}
	r.stop()
}

// A commit of more than two seconds is told, with its length, and the next one is not.
func TestSlowIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		s := newStore(newFile(t), testConfig())
		s.opt.Slow = func(op string, took time.Duration) {
			if op == "commit" {
				told = append(told, took)
			}
		}
		if err := ready(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var stalled atomic.Bool
		file := fileOf(t, s.db)
		hookWrites(t, s.db, func(b []byte, off int64) (int, error) {
			if off < 2*PageSize && !stalled.Swap(true) {
				time.Sleep(3 * time.Second)
			}
			return file.WriteAt(b, off)
		})
		r := (&rig{Store: s, t: t}).start()
		if s.CommitAge() != 0 {
			t.Errorf("a commit of %s runs in an idle store", s.CommitAge())
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustCommit(r, put{Key: "k"})
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if age := s.CommitAge().Round(time.Millisecond); age != time.Second {
			t.Errorf("the commit runs for %s", s.CommitAge())
		}
		<-done
		mustCommit(r, put{Key: "k"})
		r.stop()
		if len(told) != 1 || told[0] != 3*time.Second {
			t.Errorf("told %v", told)
		}
	})
}
