package edge

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
)

// verified runs Verify and returns the findings.
func (r *rig) verified(fix bool) (v Verified, found []Finding) {
	r.t.Helper()
	v, err := r.e.Verify(context.Background(),
		VerifyOptions{Fix: fix, Found: func(f Finding) { found = append(found, f) }})
	if err != nil || v.Bad != len(found) {
		r.t.Fatalf("verify: %+v, %v, %d findings", v, err, len(found))
	}
	return v, found
}

// An object over 1 MiB that was damaged on the disk is not served after a restart, because it is
// hashed before its first use.
func TestLargeObjectIsHashedOnce(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, hotObject+5)
	o := r.want(h.name+"/x", body("x"))
	if !r.e.content.sums.has(o.Digest) {
		t.Error("an object that was fetched is to be hashed again")
	}
	r.reboot()
	if r.e.content.sums.has(o.Digest) {
		t.Error("a restart has hashed nothing yet")
	}
	r.want(h.name+"/x", body("x"))
	if !r.e.content.sums.has(o.Digest) {
		t.Error("a read object is to be hashed again")
	}
	r.cfg.Mode = config.ModeOffline
	r.reboot()
	flip(t, r.file(o.Digest), hotObject+3)
	r.refused(h.name+"/x", asset.ErrCorrupt) // at once, even if the disk is slow to set it aside
	if err := r.e.content.write(t.Context(), roomFor{bytes: 1}); err != nil {
		t.Error(err)
	}
	r.refused(h.name+"/x", asset.ErrNotFound)
	if n := r.count("edge_damaged_total", "kind", "object"); n != 1 {
		t.Errorf("%v counted", n)
	}
	if r.board.Report(service, "").Causes[service+"."+keyIntact] == "" {
		r.board.Sample(r.now())
		if r.board.Report(service, "").Causes[service+"."+keyIntact] == "" {
			t.Error("readiness does not show it")
		}
	}
	r.sound()
	r.cfg.Mode = config.ModeLive
	r.reboot()
	r.want(h.name+"/x", body("x"))
}

// Concurrent first readers of a large object share one reading of it.
func TestFirstReadersShare(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, hotObject+5)
	o := r.want(h.name+"/x", body("x"))
	r.e.content.sums.forget(o.Digest)
	for range hashAtOnce {
		r.e.content.sums.slots <- struct{}{}
	}
	var all sync.WaitGroup
	var waiting atomic.Int64
	for range 20 {
		all.Go(func() {
			waiting.Add(1)
			r.want(h.name+"/x", body("x"))
		})
	}
	until(t, "all wait", func() bool { return waiting.Load() == 20 && r.e.content.sums.flights.Len() == 1 })
	early, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.e.Asset(early, h.name+"/x", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that leaves: %v", err)
	}
	for range hashAtOnce {
		<-r.e.content.sums.slots
	}
	all.Wait()
}

// Verify reports each damaged or missing object and keeps it. With Fix it fetches the object again
// if its URL is allowed, and drops it otherwise.
func TestVerify(t *testing.T) {
	t.Parallel()
	for mode, done := range map[string]string{config.ModeLive: Refetched, config.ModeOffline: Dropped} {
		r, h, body := newSizedRig(t, hotObject+5)
		large := r.want(h.name+"/large", body("large")).Digest
		gone := r.want(h.name+"/gone", body("gone")).Digest
		r.want(h.name+"/sound", body("sound"))
		if v, _ := r.verified(true); v.Objects != 3 || v.Bytes != 3*(hotObject+5) || v.Bad != 0 {
			t.Errorf("sound: %+v", v)
		}
		flip(t, r.file(large), 99)
		if err := os.Remove(r.file(gone)); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			large.String(): "https://" + h.name + "/large",
			gone.String():  "https://" + h.name + "/gone",
		}
		check := func(found []Finding, done string) {
			t.Helper()
			for _, f := range found {
				if f.Kind != "object" || want[f.Name] != f.URL || f.Fault == "" || f.Done != done {
					t.Errorf("%s: %+v, want %s", mode, f, done)
				}
			}
			if len(found) != 2 {
				t.Errorf("%s: %d found", mode, len(found))
			}
		}
		_, found := r.verified(false)
		check(found, Kept)
		_, found = r.verified(false)
		check(found, Kept)
		if r.e.content.sums.has(large) {
			t.Error("a damaged object counts as hashed")
		}
		r.cfg.Mode = mode
		r.e.Reload(r.cfg)
		_, found = r.verified(true)
		check(found, done)
		if v, _ := r.verified(false); v.Bad != 0 || v.Objects != map[string]int{config.ModeLive: 3, config.ModeOffline: 1}[mode] {
			t.Errorf("%s: after it: %+v", mode, v)
		}
		r.sound()
		if mode == config.ModeLive {
			r.want(h.name+"/large", body("large"))
		}
	}
}

// An object that the disk does not read is reported and not moved, and the other objects are read.
func TestVerifyUnreadable(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 5)
	bad := r.want(h.name+"/a", body("a")).Digest
	r.want(h.name+"/b", body("b"))
	file := r.file(bad)
	if err := errors.Join(os.Remove(file), os.Symlink(file, file)); err != nil { // opening it fails with ELOOP
		t.Fatal(err)
	}
	r.e.rehash = func(_ context.Context, each func(pack.Info, error)) error {
		each(pack.Info{ID: "good"}, nil)
		return nil
	}
	for _, fix := range []bool{false, true} {
		v, found := r.verified(fix)
		if v.Objects != 2 || v.Packs != 1 || len(found) != 1 || found[0].Name != bad.String() || found[0].Done != Kept {
			t.Errorf("fix %v: %+v, %+v", fix, v, found)
		}
	}
	if n := r.count("edge_damaged_total", "kind", "object"); n != 2 {
		t.Errorf("%v counted", n)
	}
}

// Verify reads the packs too, and admits one run at a time.
func TestVerifyPacks(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.e.rehash = func(ctx context.Context, each func(pack.Info, error)) error {
		if _, err := r.e.Verify(ctx, VerifyOptions{}); !errors.Is(err, ErrVerifying) {
			t.Errorf("a second run: %v", err)
		}
		each(pack.Info{ID: "good"}, nil)
		each(pack.Info{ID: "world", Size: 7}, errors.New("it has another hash"))
		return nil
	}
	v, found := r.verified(true)
	if v.Packs != 2 || len(found) != 1 ||
		found[0] != (Finding{Kind: "pack", Name: "world", Size: 7, Fault: "it has another hash", Done: Kept}) {
		t.Errorf("%+v, %+v", v, found)
	}
	v, err := r.e.Verify(context.Background(), VerifyOptions{})
	if err != nil || v.Packs != 2 {
		t.Errorf("again: %+v, %v", v, err)
	}
}

// Once per edge.scrub.every all objects are read at edge.scrub.rate, and damaged ones are fetched
// again. A restart does not restart the interval.
func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live, func(r *rig) {
			r.cfg.Scrub = config.ScrubConfig{Every: unit.Duration(2 * time.Hour), Rate: 64 << 10}
			r.cfg.Ingress.TimeoutSecs = 30
		})
		big := sized(640 << 10)("x")
		r.e.get = bigAnswers(big)
		r.start()
		o := r.want("example.com/x", big)
		time.Sleep(90 * time.Minute)
		flip(t, r.file(o.Digest), 5)
		r.stop()
		r.open()
		r.e.get = bigAnswers(big)
		r.start()
		r.e.Purge()
		time.Sleep(29 * time.Minute)
		if n := r.count("edge_damaged_total", "kind", "object"); n != 0 {
			t.Error("a scrub before its time")
		}
		time.Sleep(2*time.Minute + 5*time.Second)
		if n := r.count("edge_damaged_total", "kind", "object"); n != 0 {
			t.Error("640 KiB at 64 KiB/s were read within 5 s")
		}
		time.Sleep(time.Minute)
		if n := r.count("edge_damaged_total", "kind", "object"); n != 1 {
			t.Errorf("%v found", n)
		}
		r.cfg.Mode = config.ModeOffline
		r.e.Reload(r.cfg)
		r.want("example.com/x", big)
		r.sound()
		r.stop()
	})
}

// bigAnswers is a host with one large body.
func bigAnswers(body string) fake {
	return func(_ context.Context, _ string, r upstream.Request, take func(*upstream.Answer) error) error {
		r.Trying()
		return take(
			&upstream.Answer{
				Header: map[string][]string{"Etag": {`"a"`}},
				Length: int64(len(body)),
				Body:   strings.NewReader(body),
			},
		)
	}
}
