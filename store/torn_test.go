package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/store/page"
)

const sector = 512 // bytes that a disk writes atomically

// pageWrite is one write of bbolt.
type pageWrite struct {
	off  int64
	data []byte
}

// isMeta reports whether w writes a meta page, which completes a commit.
func (w pageWrite) isMeta() bool { return w.off < 2*PageSize }

// disk is what lies on one: the pages, and how long the file is.
type disk struct {
	pages []byte
	size  int64
}

func (d disk) clone() disk { return disk{slices.Clone(d.pages), d.size} }

func (d disk) with(writes ...pageWrite) disk {
	out := d.clone()
	for _, w := range writes {
		if need := int(w.off) + len(w.data); need > len(out.pages) {
			out.pages = append(out.pages, make([]byte, need-len(out.pages))...)
		}
		copy(out.pages[w.off:], w.data)
	}
	return out
}

// recordedCommit is what one commit wrote: to a disk with one state, for another one.
type recordedCommit struct {
	before    disk
	data      []pageWrite // up to the first sync
	meta      pageWrite
	old, next string // states
}

// after is the disk once all of it is there.
func (c recordedCommit) after() disk { return c.before.with(c.data...).with(c.meta) }

// fill is one command that puts and deletes rows.
func fill(from, to, size int) do[int] {
	return do[int]{"test.fill/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		for i := from; i < to; i++ {
			if key := fmt.Sprintf("%04d", i); size < 0 {
				rows.Delete(w, key)
			} else {
				rows.Put(w, key, bytes.Repeat([]byte{byte(i), byte(size)}, size/2))
			}
		}
		w.Audit(Event{Event: "test", Decision: "allow"})
		return 0, nil
	}}
}

// recordCommits runs commits of several shapes: pages that split and merge, values of more than a
// page, pages used again.
func recordCommits(t *testing.T) (out []recordedCommit) {
	t.Helper()
	r := open(t, newFile(t))
	mustCommit(r, fill(0, 60, 200))
	file := fileOf(t, r.db)
	raw, err := os.ReadFile(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	used := r.room.last.Load().size + 64*PageSize
	now := disk{raw[:min(used, int64(len(raw)))], int64(len(raw))}
	var writes []pageWrite
	hookWrites(t, r.db, func(b []byte, off int64) (int, error) {
		writes = append(writes, pageWrite{off, bytes.Clone(b)})
		return file.WriteAt(b, off)
	})
	for _, c := range []do[int]{fill(60, 61, 10), fill(60, 61, 20<<10), fill(61, 160, 300), fill(20, 120, -1),
		fill(10, 12, 100), fill(0, 1, 8<<10), fill(5, 6, 4)} {
		was := r.state()
		writes = nil
		mustCommit(r, c)
		last := len(writes) - 1
		if last < 1 || !writes[last].isMeta() || slices.ContainsFunc(writes[:last], pageWrite.isMeta) {
			t.Fatalf("%d writes: the meta page is not the last alone", len(writes))
		}
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		now.size = info.Size()
		done := recordedCommit{now, writes[:last], writes[last], was, r.state()}
		out, now = append(out, done), done.after()
	}
	hookWrites(t, r.db, file.WriteAt)
	r.stop()
	return out
}

// state returns the seq and the hash of the open file.
func (r *rig) state() string {
	r.t.Helper()
	return fmt.Sprint(r.Info().Seq, " ", r.hash())
}

// boot opens what lies on a disk as a node would after a crash, and tells the state it finds.
func (d disk) boot(t *testing.T, path string) (string, error) {
	t.Helper()
	if err := os.WriteFile(path, d.pages[:min(int64(len(d.pages)), d.size)], 0o600); err != nil {
		t.Fatal(err)
	}
	truncate(t, path, d.size)
	s := newStore(path, testConfig())
	s.opt.Strict = false // bbolt's check is one of both meta pages, before it writes the older one
	if err := ready(context.Background(), s); err != nil {
		return "", err
	}
	state := (&rig{Store: s, t: t}).state()
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	return state, nil
}

// torn returns the possible results of a torn write: some of its sectors, or garbage.
func (w pageWrite) torn(rnd *rand.Rand) (out []pageWrite) {
	for n := sector; n < len(w.data); n *= 2 {
		out = append(out, pageWrite{w.off, w.data[:n]}, pageWrite{w.off + int64(n), w.data[n:]})
	}
	return append(out, w.zeroed(), w.garbled(rnd))
}

func (w pageWrite) zeroed() pageWrite { return pageWrite{w.off, make([]byte, len(w.data))} }

func (w pageWrite) garbled(rnd *rand.Rand) pageWrite {
	junk := make([]byte, len(w.data))
	for i := range junk {
		junk[i] = byte(rnd.Uint32())
	}
	return pageWrite{w.off, junk}
}

// If the writes of a commit before its first sync reach the disk whole, in part, garbled or not at
// all, the state is the previous one.
func TestTornBeforeTheSync(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	rnd, path := rand.New(rand.NewPCG(1, 2)), filepath.Join(t.TempDir(), "torn.db")
	for i, c := range recordCommits(t) {
		var disks []disk
		for n := range len(c.data) + 1 {
			disks = append(disks, c.before.with(c.data[:n]...))
		}
		for range 40 {
			var some []pageWrite
			for _, w := range c.data {
				switch rnd.IntN(4) {
				case 0:
				case 1:
					all := w.torn(rnd)
					some = append(some, all[rnd.IntN(len(all))])
				default:
					some = append(some, w)
				}
			}
			disks = append(disks, c.before.with(some...))
		}
		for j, d := range disks {
			if got, err := d.boot(t, path); err != nil || got != c.old {
				t.Fatalf("commit %d, disk %d: state %s, %v; want %s", i, j, got, err, c.old)
			}
		}
	}
}

// A meta page of which some reached the disk makes the state the new one or leaves the one before
// it.
func TestTornMetaPage(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	rnd, path := rand.New(rand.NewPCG(3, 4)), filepath.Join(t.TempDir(), "torn.db")
	for i, c := range recordCommits(t) {
		synced := c.before.with(c.data...)
		cuts := c.meta.torn(rnd)
		for _, n := range []int{1, page.Header, page.Header + 32, page.Header + 48, page.Header + page.MetaSummed,
			page.Header + page.MetaSummed + 7} {
			cuts = append(cuts, pageWrite{c.meta.off, c.meta.data[:n]})
		}
		for j, w := range cuts {
			if got, err := synced.with(w).boot(t, path); err != nil || got != c.old && got != c.next {
				t.Errorf("commit %d, cut %d: state %s, %v", i, j, got, err)
			}
		}
		if got, err := c.after().boot(t, path); err != nil || got != c.next {
			t.Errorf("commit %d: state %s, %v; want %s", i, got, err, c.next)
		}
	}
}

// A page of the last commit that a disk has lost nevertheless, zeroed, garbled or cut off, is said
// to be; the state is never another one.
func TestLostPages(t *testing.T) {
	rnd, path := rand.New(rand.NewPCG(5, 6)), filepath.Join(t.TempDir(), "torn.db")
	for i, c := range recordCommits(t) {
		whole := c.after()
		for j, w := range append(c.data, c.meta) {
			short := whole.clone()
			short.size = w.off
			for k, d := range []disk{whole.with(w.zeroed()), whole.with(w.garbled(rnd)), short} {
				got, err := d.boot(t, path)
				if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Errorf("commit %d, write %d, damage %d: %v", i, j, k, err)
				}
				if err == nil && got != c.old && got != c.next {
					t.Errorf("commit %d, write %d, damage %d: a third state, %s", i, j, k, got)
				}
			}
		}
	}
}
