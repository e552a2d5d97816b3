package edge_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/pack"
)

// verified runs Verify and returns the findings.
func (r *rig) verified(fix bool) (v content.Verified, found []content.Finding) {
	r.t.Helper()
	v, err := r.e.Verify(context.Background(),
		content.VerifyOptions{Fix: fix, Found: func(f content.Finding) { found = append(found, f) }})
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
	r.cfg.Mode = config.ModeOffline
	r.reboot()
	flip(t, r.file(o.Digest), hotObject+3)
	r.refused(h.name+"/x", asset.ErrCorrupt) // at once, even if the disk is slow to set it aside
	if err := r.barrier(); err != nil {
		t.Error(err)
	}
	r.refused(h.name+"/x", asset.ErrNotFound)
	if n := r.count("edge_damaged_total", "kind", "object"); n != 1 {
		t.Errorf("%v counted", n)
	}
	if r.board.Report(service, "").Causes[service+"."+edge.KeyIntact] == "" {
		r.board.Sample(r.now())
		if r.board.Report(service, "").Causes[service+"."+edge.KeyIntact] == "" {
			t.Error("readiness does not show it")
		}
	}
	r.sound()
	r.cfg.Mode = config.ModeLive
	r.reboot()
	r.want(h.name+"/x", body("x"))
}

// Verify reports each damaged or missing object and keeps it. With Fix it fetches the object again
// if its URL is allowed, and drops it otherwise.
func TestVerify(t *testing.T) {
	t.Parallel()
	for mode, done := range map[string]string{config.ModeLive: content.Refetched, config.ModeOffline: content.Dropped} {
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
		check := func(found []content.Finding, done string) {
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
		check(found, content.Kept)
		_, found = r.verified(false)
		check(found, content.Kept)
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
	*r.e.Rehash() = func(_ context.Context, each func(pack.Info, error)) error {
		each(pack.Info{ID: "good"}, nil)
		return nil
	}
	for _, fix := range []bool{false, true} {
		v, found := r.verified(fix)
		if v.Objects != 2 || v.Packs != 1 || len(found) != 1 || found[0].Name != bad.String() || found[0].Done != content.Kept {
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
	*r.e.Rehash() = func(ctx context.Context, each func(pack.Info, error)) error {
		if _, err := r.e.Verify(ctx, content.VerifyOptions{}); !errors.Is(err, content.ErrVerifying) {
			t.Errorf("a second run: %v", err)
		}
		each(pack.Info{ID: "good"}, nil)
		each(pack.Info{ID: "world", Size: 7}, errors.New("it has another hash"))
		return nil
	}
	v, found := r.verified(true)
	if v.Packs != 2 || len(found) != 1 ||
		found[0] != (content.Finding{Kind: "pack", Name: "world", Size: 7, Fault: "it has another hash", Done: content.Kept}) {
		t.Errorf("%+v, %+v", v, found)
	}
	v, err := r.e.Verify(context.Background(), content.VerifyOptions{})
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
		*r.e.Get() = bigAnswers(big)
		r.start()
		o := r.want("example.com/x", big)
		time.Sleep(90 * time.Minute)
		flip(t, r.file(o.Digest), 5)
		r.stop()
		r.open()
		*r.e.Get() = bigAnswers(big)
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
