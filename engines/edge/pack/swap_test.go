package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/appliance/b3"
)

// TestChangedInPlace truncates a pack and then overwrites it while it is read: readers get an
// error, never a crash or bytes of a mixture.
func TestChangedInPlace(t *testing.T) {
	for _, name := range []string{"stamen_toner_z3.pmtiles", "twolayers.mbtiles"} {
		r, s, dir := newPackRig(t, name)
		r.start()
		rescan(t, s)
		path, id := filepath.Join(dir, name), strings.TrimSuffix(name, filepath.Ext(name))
		if _, err := s.Tile(t.Context(), TileRef{Pack: id}, anyCoding); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 40_000); err != nil {
			t.Fatal(err)
		}
		// The first request finds the change, although the tile is in memory, and starts a
		// verification.
		if _, err := s.Tile(t.Context(), TileRef{Pack: id}, anyCoding); !errors.Is(err, ErrPending) {
			t.Errorf("%s cut: %v", name, err)
		}
		if _, err := s.File(id); !errors.Is(err, ErrPending) && !errors.Is(err, ErrFailed) {
			t.Errorf("file of %s cut: %v", name, err)
		}
		if got, want := states(rescan(t, s)), id+" failed"; got != want {
			t.Errorf("cut: %s, want %s", got, want)
		}
		if _, err := s.Tile(t.Context(), TileRef{Pack: id}, anyCoding); !errors.Is(err, ErrFailed) {
			t.Errorf("%s failed: %v", name, err)
		}
		whole, err := os.ReadFile(filepath.Join(realPacks, name))
		if err != nil {
			t.Fatal(err)
		}
		putPack(t, path, whole)
		if got, want := states(rescan(t, s)), id+" verified"; got != want {
			t.Errorf("whole again: %s, want %s", got, want)
		}
	}
}

// TestWrittenOver overwrites a pack with other sound bytes: it is not served until they are
// verified.
func TestWrittenOver(t *testing.T) {
	_, s, dir := newPackRig(t)
	path := filepath.Join(dir, "p.pmtiles")
	pass := func() {
		t.Helper()
		if err := s.scan(lookAtOnce); err != nil {
			t.Fatal(err)
		}
		openAll(t, s)
	}
	putPack(t, path, made("old 1", "old").bytes())
	pass()
	verifyAll(t, s)
	if err := os.WriteFile(path, made("next 2", "next").bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	pass()
	if _, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding); !errors.Is(err, ErrPending) ||
		s.Failed() != 1 {
		t.Errorf("written over: %v, %d failed", err, s.Failed())
	}
	verifyAll(t, s)
	if got, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding); err != nil || string(got.Bytes) != "next 2" {
		t.Errorf("verified again: %q, %v", got.Bytes, err)
	}
}

// TestSwapUnderReaders replaces, removes and adds packs under many readers. The only error of a
// reader is a missing pack, each tile is of the version in its answer, and at the end no file is
// open.
func TestSwapUnderReaders(t *testing.T) {
	r, s, dir := newPackRig(t)
	path := filepath.Join(dir, "swap.pmtiles")
	versions := map[string]int{} // by version
	var files [][]byte
	for i := range 5 {
		b := made(fmt.Sprint(strings.Repeat("x", 100+i), " ", i), "y").bytes()
		files = append(files, b)
		d := b3.Sum(b)
		versions[d.String()[3:19]] = i
	}
	putPack(t, path, files[0])
	r.start()
	rescan(t, s)
	before := openFiles(t)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var served, gone atomic.Int64
	for i := range 6 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if i%2 == 0 {
					got, err := s.Tile(t.Context(), TileRef{Pack: "swap"}, anyCoding)
					if errors.Is(err, ErrMissing) || errors.Is(err, ErrOpening) || errors.Is(err, ErrPending) {
						gone.Add(1)
						continue
					}
					n := 0
					if err == nil {
						_, err = fmt.Sscanf(string(bytes.TrimLeft(got.Bytes, "x")), " %d", &n)
					}
					if v, known := versions[got.Version]; err != nil || (known && v != n) ||
						(!known && got.Version != "") {
						t.Errorf("version %q is %d: %q, %v", got.Version, v, got.Bytes, err)
						return
					}
				} else {
					o, err := s.File("swap")
					if errors.Is(err, ErrMissing) || errors.Is(err, ErrOpening) || errors.Is(err, ErrPending) {
						gone.Add(1)
						continue
					}
					if err != nil {
						t.Errorf("file: %v", err)
						return
					}
					b, err := io.ReadAll(o.File)
					if err != nil || b3.Sum(b) != o.Digest {
						t.Errorf("file: %d bytes of %s, %v, said to be %s", len(b), b3.Sum(b), err, o.Digest)
					}
					o.Close()
				}
				served.Add(1)
			}
		})
	}
	swaps := 60
	if testing.Short() {
		swaps = 20
	}
	for i := range swaps {
		if i%10 == 9 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			rescan(t, s)
		}
		putPack(t, path, files[i%len(files)])
		if got := states(rescan(t, s)); got != "swap verified" {
			t.Errorf("swap %d: %s", i, got)
		}
	}
	stop()
	readers.Wait()
	if served.Load() == 0 {
		t.Error("nothing was served")
	}
	until(t, "no other file is open", func() bool { return openFiles(t) == before })
	t.Logf("%d served, %d asked while it was not there", served.Load(), gone.Load())
}

// TestOldGeneration reads a pack after another file has taken its name, and one that is closed
// while it is read.
func TestOldGeneration(t *testing.T) {
	r, s, dir := newPackRig(t)
	path := filepath.Join(dir, "p.pmtiles")
	old, next := made("old 1", "old").bytes(), made("next 2", "next").bytes()
	putPack(t, path, old)
	r.start()
	rescan(t, s)
	first, err := s.File("p")
	if err != nil {
		t.Fatal(err)
	}
	putPack(t, path, next)
	second, err := s.File("p") // before the scan
	if err != nil {
		t.Fatal(err)
	}
	rescan(t, s)
	for _, f := range []io.Reader{first.File, second.File} {
		if b, err := io.ReadAll(f); err != nil || !bytes.Equal(b, old) {
			t.Errorf("%T: %d bytes, %v", f, len(b), err)
		}
	}
	if first.Digest != b3.Sum(old) || second.Digest != b3.Sum(old) {
		t.Errorf("digests %s and %s", first.Digest, second.Digest)
	}
	first.Close()
	second.Close()
	if got, err := s.Tile(t.Context(), TileRef{Pack: "p"}, anyCoding); err != nil || string(got.Bytes) != "next 2" {
		t.Errorf("%q, %v", got.Bytes, err)
	}
	if _, err := s.File("twolayers"); !errors.Is(err, ErrMissing) {
		t.Errorf("err = %v", err)
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range all {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.Contains(to, "pmtiles") {
			n++
		}
	}
	return n
}
