package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"

	"ronbox/appliance/host/hosttest"
)

// tailSegment is the size of segments in tests of the tail.
const tailSegment = 4 << 10

// openTail opens the log in dir as a boot does.
func openTail(t *testing.T, dir string) *raftwal.WAL {
	t.Helper()
	err := mendTail(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := raftwal.Open(dir, raftwal.WithLogger(hclog.NewNullLogger()), raftwal.WithSegmentSize(tailSegment))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tailEntry returns an entry whose data depend on its index and on the number of a draw.
func tailEntry(i uint64, draw, size int) *raft.Log {
	return &raft.Log{Index: i, Term: 1, Data: bytes.Repeat(fmt.Appendf(nil, "%d/%d,", i, draw), size)}
}

func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	out, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func mustWrite(t *testing.T, file string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// expectLog expects the entries up to last and stores more, in the same life and in the next one.
func expectLog(t *testing.T, dir string, last uint64) {
	t.Helper()
	for more := range uint64(3) {
		w := openTail(t, dir)
		got, err := w.LastIndex()
		if err != nil || got != last+more {
			t.Fatalf("the log ends at %d, want %d: %v", got, last+more, err)
		}
		for i := uint64(1); i <= got; i++ {
			var e raft.Log
			if err := w.GetLog(i, &e); err != nil || !bytes.HasPrefix(e.Data, fmt.Appendf(nil, "%d/", i)) {
				t.Fatalf("entry %d of %d: %.20q, %v", i, got, e.Data, err)
			}
		}
		if err := w.StoreLog(tailEntry(got+1, 0, 20)); err != nil {
			t.Fatalf("store entry %d: %v", got+1, err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// fullTail returns a log whose last batch has filled its segment, as it is before the state says so.
func fullTail(t *testing.T) (dir string, last uint64) {
	t.Helper()
	dir = t.TempDir()
	w := openTail(t, dir)
	meta := filepath.Join(dir, metadb.FileName)
	for i := uint64(1); ; i++ {
		before := mustRead(t, meta)
		if err := w.StoreLog(tailEntry(i, 0, 80)); err != nil {
			t.Fatal(err)
		}
		if err := w.DeleteRange(i+1, i+1); err != nil { // waits until a new segment has begun
			t.Fatal(err)
		}
		if all := files(t, dir, "*.wal"); len(all) == 2 {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, meta, before)
			if err := os.Remove(all[1]); err != nil {
				t.Fatal(err)
			}
			return dir, i
		}
	}
}

// A log goes on after a stop between the last batch of a segment and the next segment.
func TestLogGoesOnAfterFullSegment(t *testing.T) {
	t.Run("synced", func(t *testing.T) {
		dir, last := fullTail(t)
		expectLog(t, dir, last)
	})
	t.Run("torn", func(t *testing.T) {
		dir, last := fullTail(t)
		file := files(t, dir, "*.wal")[0]
		loseCommit(t, file)
		expectLog(t, dir, last-1)
	})
}

// loseCommit clears the last commit frame in a segment.
func loseCommit(t *testing.T, file string) {
	t.Helper()
	raw := mustRead(t, file)
	clear(raw[(len(bytes.TrimRight(raw, "\x00"))-1)&^(frameSize-1):])
	mustWrite(t, file, raw)
}

// The rest of a batch that was not committed does not make the next batch that is torn a whole one.
func TestRestOfTornBatch(t *testing.T) {
	dir := t.TempDir()
	store := func(batch ...*raft.Log) (file string) {
		w := openTail(t, dir)
		if err := errors.Join(w.StoreLogs(batch), w.Close()); err != nil {
			t.Fatal(err)
		}
		return files(t, dir, "*.wal")[0]
	}
	long := func(size int) *raft.Log {
		return &raft.Log{Index: 2, Term: 1, Data: bytes.Repeat([]byte("2/"), size/2)}
	}
	store(tailEntry(1, 0, 1))
	file := store(long(2000), tailEntry(3, 0, 20))
	loseCommit(t, file)
	before := mustRead(t, file)
	store(long(2000 - frameSize)) // entry 3 comes after its commit
	raw := mustRead(t, file)
	copy(raw[1024:1536], before[1024:])
	raw[1030]++ // both entries have the same data
	mustWrite(t, file, raw)
	expectLog(t, dir, 1)
}

// A log that lacks entries of the file is not changed.
func TestDamagedTailIsKept(t *testing.T) {
	dir, last := fullTail(t)
	file := files(t, dir, "*.wal")[0]
	raw := mustRead(t, file)
	raw[segmentHeader] = 0 // the type of the first frame
	mustWrite(t, file, raw)
	if err := mendTail(dir, last); err != nil || !bytes.Equal(mustRead(t, file), raw) {
		t.Errorf("the segment has changed, %v", err)
	}
}

// A log keeps all that was synced over many power cuts, each in the middle of a batch.
func TestLogSurvivesPowerCuts(t *testing.T) {
	const sector = 512
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "CLUSTER_SEED"), 0))
	dir := t.TempDir()
	var want []*raft.Log
	for draw := range 60 {
		w := openTail(t, dir)
		for range d.IntN(3) {
			var batch []*raft.Log
			for range 1 + d.IntN(3) {
				batch = append(batch, tailEntry(uint64(len(want)+len(batch)+1), draw, 1+d.IntN(100)))
			}
			if err := w.StoreLogs(batch); err != nil {
				t.Fatalf("draw %d: %v", draw, err)
			}
			want = append(want, batch...)
		}
		if err := w.DeleteRange(1<<40, 1<<40); err != nil { // waits until a new segment has begun
			t.Fatal(err)
		}
		before := map[string][]byte{}
		for _, f := range files(t, dir, "*") {
			before[f] = mustRead(t, f)
		}
		var batch []*raft.Log
		for range 1 + d.IntN(4) {
			batch = append(batch, tailEntry(uint64(len(want)+len(batch)+1), draw, 1+d.IntN(100)))
		}
		if err := w.StoreLogs(batch); err != nil {
			t.Fatalf("draw %d: %v", draw, err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		// A new segment is not begun before the batch is synced.
		share := float64(d.IntN(3)) / 2
		for _, f := range files(t, dir, "*") {
			old, known := before[f]
			switch raw := mustRead(t, f); {
			case !known:
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			case filepath.Ext(f) != ".wal":
				mustWrite(t, f, old)
			default:
				for at := 0; at < len(raw); at += sector {
					if end := min(at+sector, len(raw)); d.Float64() >= share {
						clear(raw[at:end])
						copy(raw[at:end], old[min(at, len(old)):])
					}
				}
				mustWrite(t, f, raw)
			}
		}
		w = openTail(t, dir)
		last, err := w.LastIndex()
		if err != nil || last != uint64(len(want)) && last != uint64(len(want)+len(batch)) {
			t.Fatalf("draw %d: the log ends at %d, want %d or %d: %v", draw, last, len(want), len(want)+len(batch), err)
		}
		want = append(want, batch...)[:last]
		for i, e := range want {
			var got raft.Log
			if err := w.GetLog(uint64(i)+1, &got); err != nil || !bytes.Equal(got.Data, e.Data) {
				t.Fatalf("draw %d: entry %d is %.30q, want %.30q: %v", draw, i+1, got.Data, e.Data, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
