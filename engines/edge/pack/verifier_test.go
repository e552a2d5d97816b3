package pack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/packtest"
)

// TestRemembered restarts: unchanged packs are verified without reading them, and a touched one is
// read again.
func TestRemembered(t *testing.T) {
	r, s, dir := newPackRig(t, "stamen_toner_z3.pmtiles", "twolayers.mbtiles")
	if got, want := states(s.List()), "stamen_toner_z3 opening, twolayers opening"; got != want {
		t.Errorf("the first start: %s, want %s", got, want)
	}
	r.start()
	before := rescan(t, s)
	r.stop()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "twolayers.mbtiles"), later, later); err != nil {
		t.Fatal(err)
	}
	r.open()
	s = r.set
	openAll(t, s)
	if got, want := states(s.List()), "stamen_toner_z3 verified, twolayers verifying"; got != want {
		t.Errorf("the second start: %s, want %s", got, want)
	}
	if now := s.List()[0]; now.Digest != before[0].Digest || now.Tiles != 85 || now.Version != before[0].Version {
		t.Errorf("remembered: %+v, was %+v", now, before[0])
	}
	r.start()
	if now := rescan(t, s)[1]; now.Digest != before[1].Digest || now.State != asset.PackVerified {
		t.Errorf("verified again: %+v, was %+v", now, before[1])
	}
	if n := len(s.current.Load().rows); n != 2 {
		t.Errorf("%d packs are remembered", n)
	}
}

// TestScanWhileVerifying adds a pack to the folder while another one is hashed: it is opened before
// that ends.
func TestScanWhileVerifying(t *testing.T) {
	r, s, dir := newPackRig(t)
	putPack(t, filepath.Join(dir, "big.pmtiles"), append(made("big", "x").bytes(), make([]byte, 5*hashChunk)...))
	if err := s.scan(lookAtOnce); err != nil {
		t.Fatal(err)
	}
	openAll(t, s)
	big := s.current.Load().take() // like a verifier that does not end
	r.start()
	putPack(t, filepath.Join(dir, "small.pmtiles"), made("small", "x").bytes())
	if _, err := s.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the small pack is verified", func() bool { return states(s.List()) == "big verifying, small verified" })
	big.taken.Store(false)
	big.Close()
	rescan(t, s)
	if got, want := states(s.List()), "big verified, small verified"; got != want {
		t.Errorf("packs: %s, want %s", got, want)
	}
}

// TestReplacedWhileVerifying replaces a pack while it is hashed: the result is not applied to the
// new file.
func TestReplacedWhileVerifying(t *testing.T) {
	_, s, dir := newPackRig(t)
	path := filepath.Join(dir, "p.pmtiles")
	next := made("next 2", "next").bytes()
	scan := func() {
		if err := s.scan(lookAtOnce); err != nil {
			t.Fatal(err)
		}
		openAll(t, s)
	}
	putPack(t, path, append(made("old 1", "old").bytes(), make([]byte, 3*hashChunk)...))
	scan()
	old := s.current.Load().take()
	swapped := false
	r, err := old.verify(t.Context(), func(int64, int64) {
		if !swapped {
			swapped = true
			putPack(t, path, next)
			scan()
		}
	})
	if err != nil || len(r.Faults) > 0 {
		t.Errorf("the old pack: %+v, %v", r, err)
	}
	s.finish(t.Context(), old, r, nil)
	old.Close()
	if i := s.List()[0]; i.State != asset.PackVerified || i.Digest != r.Info.Digest || i.Next != asset.PackVerifying {
		t.Errorf("the old pack while the new one is verified: %+v", i)
	}
	verifyAll(t, s)
	if i := s.List()[0]; i.State != asset.PackVerified || i.Digest != b3.Sum(next) || i.Next != "" {
		t.Errorf("the new pack: %+v", i)
	}
}

// TestChangedWhileVerifying changes bytes of a pack while it is hashed.
func TestChangedWhileVerifying(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.pmtiles")
	putPack(t, path, append(made("x 1", "x").bytes(), make([]byte, 3*hashChunk)...))
	p := openOne(t, path)
	defer p.Close()
	cut := int64(0)
	_, err := p.verify(t.Context(), func(done, total int64) {
		if cut == 0 {
			cut = done
			if err := os.Truncate(path, cut); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "hash at 1048576") {
		t.Errorf("cut while it is hashed: %v", err)
	}
}

// TestVerifyQueue fills the queue: a further scan is refused, and every caller is answered when the
// task ends.
func TestVerifyQueue(t *testing.T) {
	r, s, _ := newPackRig(t)
	var callers sync.WaitGroup
	outcomes := make(chan error, verifyQueue)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range verifyQueue {
		j := scanJob{reply: flow.NewReply[error]()}
		if err := s.jobs.TrySend(j); err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		callers.Go(func() { _, err := j.reply.Wait(ctx); outcomes <- err })
	}
	if _, err := s.Rescan(ctx); !errors.Is(err, flow.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	stopped, end := context.WithCancelCause(t.Context())
	end(flow.ErrCanceled)
	if err := s.runScanner(stopped); !errors.Is(err, flow.ErrCanceled) {
		t.Errorf("the task: %v", err)
	}
	callers.Wait()
	close(outcomes)
	for err := range outcomes {
		if !errors.Is(err, flow.ErrCanceled) {
			t.Errorf("a caller: %v", err)
		}
	}
	if _, err := s.Rescan(ctx); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	r.stop()
}

// TestRescanLeft lets a caller leave early: the scan is still made.
func TestRescanLeft(t *testing.T) {
	r, s, dir := newPackRig(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	if _, err := s.Rescan(ctx); err == nil || err.Error() != "gone" {
		t.Errorf("err = %v", err)
	}
	putPack(t, filepath.Join(dir, "p.pmtiles"), made("x 1", "x").bytes())
	r.start()
	if got := states(rescan(t, s)); got != "p verified" {
		t.Errorf("packs: %s", got)
	}
}

// TestPackEvents follows packs through their states.
func TestPackEvents(t *testing.T) {
	r, s, dir := newPackRig(t)
	var mu sync.Mutex
	var told []Info
	s.Event = func(i Info) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, i)
	}
	path := filepath.Join(dir, "p.pmtiles")
	putPack(t, path, made("x 1", "x").bytes())
	r.start()
	rescan(t, s)
	rescan(t, s)
	putPack(t, path, []byte("no pack"))
	rescan(t, s)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	rescan(t, s)
	mu.Lock()
	defer mu.Unlock()
	if got, want := states(told), "p opening, p verifying, p verified, p removed"; got != want {
		t.Errorf("events: %s, want %s", got, want)
	}
}

// TestVerifyPack verifies files without a node.
func TestVerifyPack(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		putPack(t, path, b)
		return path
	}
	many := madePack{coding: 1, maxZoom: 9, header: func(b []byte) { b[72], b[80] = 1, 1 }}
	for i := range 300 {
		many.tiles = append(many.tiles, madeTile{uint64(i), 1, []byte{byte(i), byte(i >> 8)}})
	}
	for _, tt := range []struct {
		path  string
		sound bool
		words string
		err   bool
	}{
		{filepath.Join(realPacks, "stamen_toner_z3.pmtiles"), true, "", false},
		{filepath.Join(realPacks, "twolayers.mbtiles"), true, "", false},
		{put("Any Name.pmtiles", made("x 1", "x").bytes()), true, "", false},
		{put("cut.pmtiles", made("x 1", "x").bytes()[:139]), false, "1 bytes at 3, the file has 3", false},
		{put("many.pmtiles", many.bytes()), true, "header: 257 addressed tiles, the directories have 300", false},
		{put("broken.pmtiles", made(broken, broken).bytes()), false, "none of 2 tiles that were read decodes", false},
		{put("text.mbtiles", []byte("text")), false, "not a database", false},
		{put("map.zip", nil), false, "a pack is a .pmtiles or .mbtiles file", false},
		{filepath.Join(dir, "none.pmtiles"), false, "", true},
	} {
		last := int64(-1)
		r, err := Verify(t.Context(), tt.path, b3.Digest{}, func(done, total int64) {
			if done <= last || done > total {
				t.Errorf("%s: progress %d of %d after %d", tt.path, done, total, last)
			}
			last = done
		})
		faults, sound := strings.Join(r.Faults, "; "), err == nil && len(r.Faults) == 0
		for _, w := range r.Info.Warnings {
			faults += w.Text
		}
		if (err != nil) != tt.err || sound != tt.sound || !strings.Contains(faults, tt.words) ||
			(tt.sound && last != r.Info.Size) {
			t.Errorf("%s: sound %v, %q, %v", tt.path, sound, faults, err)
		}
		if sound != (r.Info.State == asset.PackVerified) {
			t.Errorf("%s: sound %v and %s", tt.path, sound, r.Info.State)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ended, filepath.Join(realPacks, "stamen_toner_z3.pmtiles"), b3.Digest{},
		func(int64, int64) {}); !errors.Is(
		err,
		context.Canceled,
	) {
		t.Errorf("a caller that has left: %v", err)
	}
}

// measure runs f over all tiles in turn and reports the 50th and 99th percentiles.
func measure(b *testing.B, name string, refs []TileRef, f func(TileRef) error) {
	b.Run(name, func(b *testing.B) {
		took := make([]time.Duration, 0, 1<<20)
		for i := 0; b.Loop(); i++ {
			at := time.Now()
			if err := f(refs[i%len(refs)]); err != nil {
				b.Fatal(err)
			}
			if len(took) < cap(took) {
				took = append(took, time.Since(at))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	})
}

// TestSoundPackNeedsNoBudget lets checks exceed their budget. A pack with the bytes of an earlier
// verification is served, after a scrub and with another time. Other bytes are refused.
func TestSoundPackNeedsNoBudget(t *testing.T) {
	r, s, dir := newPackRig(t, "twolayers.mbtiles")
	r.start()
	was := rescan(t, s)[0]
	s.env.cfg.VerifyBase, s.env.cfg.VerifyRate = 1, 1<<50
	if got := rehashed(t, s); got != "twolayers sound" {
		t.Errorf("the scrub: %s", got)
	}
	path := filepath.Join(dir, "twolayers.mbtiles")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if i := rescan(t, s)[0]; i.State != asset.PackVerified || i.Digest != was.Digest || i.Tiles != was.Tiles {
		t.Errorf("under another time: %+v", i)
	}
	packtest.WriteMBTiles(t, filepath.Join(dir, "other.mbtiles"), packtest.Sound)
	if i := rescan(t, s)[0]; i.State != asset.PackFailed || !strings.Contains(i.Fault, "the check took more than") {
		t.Errorf("another pack: %+v", i)
	}
}
