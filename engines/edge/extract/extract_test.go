package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/packtest"
	"ronbox/engines/edge/pmtiles"
	"ronbox/store"
)

// spansOf returns the spans of a request.
func spansOf(t testing.TB, q Request, low, high uint8) []pmtiles.Span {
	t.Helper()
	region, err := parseBBox(*q.BBox)
	if err != nil {
		t.Fatal(err)
	}
	spans, _, err := pmtiles.Spans(t.Context(), region, low, high, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return spans
}

func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range all {
		out = append(out, f.Name())
	}
	return out
}

// An extract has the tiles of its region, costs little more than these, and becomes a pack.
func TestExtract(t *testing.T) {
	r := newRig(t)
	high := uint8(3)
	for _, q := range []Request{
		east("east"),
		{Pack: "low", URL: sourceURL, MaxZoom: &high, BBox: &[4]float64{170, -20, -170, 20}},
		{Pack: "high", URL: sourceURL, MinZoom: 2, BBox: &[4]float64{1, 1, 2, 2}},
	} {
		r.sent, r.asked = 0, nil
		low, top := q.MinZoom, uint8(4)
		if q.MaxZoom != nil {
			top = *q.MaxZoom
		}
		spans, tiles := spansOf(t, q, low, top), uint64(0)
		for _, s := range spans {
			tiles += s.End - s.First
		}
		i := r.begin(q)
		if i.State != Waiting || i.Tiles != tiles || i.Bytes < int64(tiles)*tileSize || i.MinZoom != low || i.MaxZoom != top ||
			i.ETag != `"1"` || i.Done <= 0 || i.Done > 2000 || secret(i.URL) {
			t.Errorf("%+v, want %d tiles", i, tiles)
		}
		if again := r.begin(q); again != i {
			t.Errorf("again: %+v, want %+v", again, i)
		}
		r.start()
		if done := r.until(q.Pack, Done); done.Done != i.Bytes || done.Requests < 2 || done.Fault != "" {
			t.Errorf("%+v", done)
		}
		r.equal(q.Pack, spans)
		if need := i.Bytes + firstBytes; r.sent > need+need/20+2*spareGaps || r.most > atOnce {
			t.Errorf("%s: %d bytes for %d, %d at once", q.Pack, r.sent, i.Bytes, r.most)
		}
		folder := filepath.Join(r.packs.Dir(), folderName, q.Pack)
		if st, err := os.Stat(filepath.Join(folder, planName)); err != nil || st.Mode().Perm() != 0o600 ||
			len(names(t, folder)) != 1 {
			t.Errorf("%v, %q", err, names(t, folder))
		}
		if got, err := r.packs.Info(q.Pack); err != nil || got.State != asset.PackVerified || len(got.Warnings) > 0 ||
			got.Name != "world" {
			t.Errorf("%+v, %v", got, err)
		}
		r.reboot()
		if i := r.info(q.Pack); i.State != Done {
			t.Errorf("after a restart: %+v", i)
		}
	}
	if secret(r.log.String()) {
		t.Error(r.log.String())
	}
}

// A dry run plans and leaves nothing.
func TestDryRun(t *testing.T) {
	r := newRig(t)
	q := east("east")
	q.DryRun = true
	i := r.begin(q)
	if i.State != Planning || i.Tiles == 0 || i.Bytes == 0 || len(r.x.List()) != 0 ||
		len(names(t, filepath.Join(r.packs.Dir(), folderName))) != 0 {
		t.Errorf("%+v, %v", i, r.x.List())
	}
	q.DryRun = false
	if real := r.begin(q); real.Bytes != i.Bytes || real.Tiles != i.Tiles {
		t.Errorf("%+v, planned %+v", real, i)
	}
}

// A region is read, too.
func TestExtractOfRegion(t *testing.T) {
	r := newRig(t)
	q := Request{Pack: "p", URL: sourceURL, Region: []byte(`{"type":"Polygon","coordinates":[[[0,-80],[180,-80],[180,80],[0,80],[0,-80]]]}`)}
	if i := r.begin(q); i.BBox != *east("").BBox {
		t.Errorf("%+v", i)
	}
	r.start()
	r.until("p", Done)
	r.equal("p", spansOf(t, east("p"), 0, 4))
}

// What cannot be extracted is refused at its first answer, and leaves nothing.
func TestRefusedExtracts(t *testing.T) {
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	reason := func(want asset.Reason) func(error) bool {
		return func(err error) bool {
			f, ok := errors.AsType[*asset.FillError](err)
			return ok && f.Reason == want && !secret(f.Error())
		}
	}
	member := func(want string) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*RegionError](err)
			return ok && strings.HasPrefix(e.Error(), want)
		}
	}
	unfit := func(err error) bool { _, ok := errors.AsType[*pack.RefusedError](err); return ok }
	many := func(zoom int) func(error) bool {
		return func(err error) bool { e, ok := errors.AsType[*ManyError](err); return ok && e.Zoom == zoom }
	}
	answer := func(change func(*upstream.Answer)) func(*rig) {
		return func(r *rig) {
			r.ask = func(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
				return r.serve(from, to, h, func(a *upstream.Answer) error {
					change(a)
					return take(a)
				})
			}
		}
	}
	fails := func(err error) func(*rig) {
		return func(r *rig) {
			r.ask = func(int64, int64, http.Header, func(*upstream.Answer) error) error { return err }
		}
	}
	later := func(change func(r *rig)) func(*rig) { // between the first answer and the directories
		return func(r *rig) {
			r.ask = func(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
				if h.Get("If-Match") != "" {
					r.mu.Lock()
					change(r)
					r.mu.Unlock()
				}
				return r.serve(from, to, h, take)
			}
		}
	}
	five, one := uint8(5), uint8(1)
	for _, tt := range []struct {
		doc    string
		change func(*rig)
		q      func(*Request)
		want   func(error) bool
	}{
		{"amnesia", func(r *rig) { r.amnesia = true }, nil, is(asset.ErrAmnesia)},
		{"offline", func(r *rig) { r.cfg.Mode = config.ModeOffline }, nil, is(asset.ErrOffline)},
		{"no URL", nil, func(q *Request) { q.URL = "http://maps.example/" },
			func(err error) bool { _, ok := errors.AsType[*asset.PathError](err); return ok }},
		{"no id", nil, func(q *Request) { q.Pack = "../east" }, is(pack.ErrName)},
		{"two regions", nil, func(q *Request) { q.Region = []byte("{}") }, member("/region: is not possible")},
		{"bad bbox", nil, func(q *Request) { q.BBox[0] = 200 }, member("/bbox")},
		{"bad region", nil, func(q *Request) { q.BBox, q.Region = nil, []byte("{}") }, member("/region/type")},
		{"bad levels", nil, func(q *Request) { q.MinZoom, q.MaxZoom = 2, &one }, member("/min_zoom: is above")},
		{"levels beyond the source", nil, func(q *Request) { q.MinZoom, q.MaxZoom = 5, &five },
			member("/min_zoom: the source has")},
		{"no ranges", answer(func(a *upstream.Answer) { a.Status = 200 }), nil, is(ErrNoRanges)},
		{"no ranges, longer", fails(upstream.ErrTooLarge), nil, is(ErrNoRanges)},
		{"another range", answer(func(a *upstream.Answer) { a.Header.Set("Content-Range", "bytes 1-16383/99999") }), nil,
			is(ErrNoRanges)},
		{"a negative size", answer(func(a *upstream.Answer) { a.Header.Set("Content-Range", "bytes 0--5/-4") }), nil,
			is(ErrNoRanges)},
		{"no size", answer(func(a *upstream.Answer) { a.Header.Set("Content-Range", "bytes 0-16383/*") }), nil,
			is(ErrNoRanges)},
		{"weak tag", answer(func(a *upstream.Answer) { a.Header.Set("ETag", `W/"1"`) }), nil, reason(asset.ETagInvalid)},
		{"no tag", answer(func(a *upstream.Answer) { a.Header.Del("ETag") }), nil, reason(asset.ETagInvalid)},
		{"missing", fails(&upstream.StatusError{Status: 404}), nil, reason(asset.UpstreamNotFound)},
		{"forbidden", fails(&upstream.StatusError{Status: 403}), nil, reason(asset.Upstream4xx)},
		{"fails", fails(&upstream.StatusError{Status: 503}), nil, reason(asset.UpstreamUnavailable)},
		{"host", fails(upstream.ErrURL), nil, reason(asset.NotAllowed)},
		{"torn", answer(func(a *upstream.Answer) { a.Body = io.LimitReader(a.Body, 99) }), nil,
			reason(asset.UpstreamTruncated)},
		{"changed meanwhile", later(func(r *rig) { r.etag = `"2"` }), nil, is(ErrChanged)},
		{"gone meanwhile", later(func(r *rig) { r.source = nil; r.etag = "" }), nil, is(ErrChanged)},
		{"no archive", func(r *rig) { r.source = bytes.Repeat([]byte("hello"), 9999) }, nil, unfit},
		{"broken leaves", func(r *rig) {
			r.source = bytes.Clone(r.source)
			clear(r.source[127+20 : 3000])
		}, nil, unfit},
		{"too many", func(r *rig) { r.cfg.Extract.MaxTiles = 50 }, nil, many(3)},
		{"far too many", func(r *rig) { r.cfg.Extract.MaxTiles = 1 }, nil, many(0)},
		{"too many at the lowest", func(r *rig) { r.cfg.Extract.MaxTiles = 50 },
			func(q *Request) { q.MinZoom = 4 }, many(-1)},
		{"no room", func(r *rig) { r.cfg.Packs.MaxBytes = 100_000 }, nil,
			func(err error) bool { _, ok := errors.AsType[*pack.RoomError](err); return ok }},
	} {
		r := newRig(t, func(r *rig) {
			if tt.change != nil {
				tt.change(r)
			}
		})
		q := east("east")
		if tt.q != nil {
			tt.q(&q)
		}
		if _, err := r.x.Begin(t.Context(), q); err == nil || !tt.want(err) || secret(err.Error()) {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if n := names(t, filepath.Join(r.dir, "packs", folderName)); len(n)+len(r.x.List()) > 0 {
			t.Errorf("%s: left %q, %v", tt.doc, n, r.x.List())
		}
	}
	r := newRig(t)
	x := New(Deps{Catalog: flow.NewCatalog(obs.NewMetrics(), hclog.NewNullLogger()), Config: r.x.d.Config, Now: time.Now,
		Packs: r.packs, Owner: r})
	if _, err := x.Begin(t.Context(), east("p")); !errors.Is(err, store.ErrNotLeader) || len(x.List()) > 0 {
		t.Errorf("before Recover: %v", err)
	}
}

// The folder is the queue: it has at most 8 extracts, and the oldest is read first, also after a
// restart. Those that are done make room for others.
func TestQueue(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.Packs.MaxBytes = unit.Size(8 * 1_000_000) })
	for i := range mostExtracts {
		r.begin(east(fmt.Sprint("p", 9-i)))
	}
	if _, err := r.x.Begin(t.Context(), east("q")); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	q := east("p5")
	q.MinZoom = 1
	if _, err := r.x.Begin(t.Context(), q); !errors.Is(err, ErrAnother) {
		t.Errorf("another of the same pack: %v", err)
	}
	r.cfg.Packs.MaxBytes = unit.Size(8 * 776_000)
	r.reboot()
	var order []string
	for _, i := range r.x.List() {
		order = append(order, i.Pack)
	}
	if got := strings.Join(order, " "); got != "p9 p8 p7 p6 p5 p4 p3 p2" {
		t.Errorf("order %s", got)
	}
	if _, err := r.packs.Reserve("q.pmtiles", 0, 9000); err == nil {
		t.Error("the room of the extracts counts no more after a restart")
	}
	r.start()
	r.until("p2", Done)
	for _, i := range r.x.List() {
		if i.State != Done {
			t.Errorf("%+v", i)
		}
	}
	r.begin(east("p2"))
	r.until("p2", Done)
	r.begin(east("p3"))
	if n := len(r.x.List()); n != mostExtracts {
		t.Errorf("%d extracts", n)
	}
	r.until("p3", Done)
	if err := r.x.Remove(t.Context(), "p3"); err != nil {
		t.Error(err)
	}
	if err := r.x.Remove(t.Context(), "p3"); !errors.Is(err, pack.ErrMissing) {
		t.Error(err)
	}
	if _, err := r.packs.Info("p3"); err != nil {
		t.Errorf("the pack of a removed extract: %v", err)
	}
}

// An extract that was cut goes on where it was, with the directories that it has.
func TestResume(t *testing.T) {
	for _, tt := range []struct {
		doc string
		cut func(r *rig, f folder)
	}{
		{"drain", func(*rig, folder) {}},
		{"kill", func(r *rig, f folder) { // bytes are in the file that the plan does not know
			p, err := f.read()
			if err != nil {
				r.t.Fatal(err)
			}
			p.Synced = p.Head
			if err := f.write(p); err != nil {
				r.t.Fatal(err)
			}
		}},
		{"power cut", func(r *rig, f folder) {
			p, err := f.read()
			if err != nil {
				r.t.Fatal(err)
			}
			p.Boot = "another"
			file, err := os.OpenFile(f.path(partName), os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = file.Write(make([]byte, 30_000)) // of which the disk had the length alone
			}
			if err = errors.Join(err, file.Close(), f.write(p)); err != nil {
				r.t.Fatal(err)
			}
		}},
		{"no folder", func(r *rig, f folder) {
			if err := os.MkdirAll(string(f)+"-2", 0o700); err != nil {
				r.t.Fatal(err)
			}
		}},
	} {
		r := newRig(t)
		q := east("east")
		r.begin(q)
		before := r.sent
		blocked := make(chan struct{}, atOnce)
		r.host(func(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
			if from > int64(len(r.source))*2/3 {
				for r.info("east").Done <= 2000 { // the first range is written
					runtime.Gosched()
				}
				blocked <- struct{}{}
				return errTorn
			}
			return r.serve(from, to, h, take)
		})
		r.start()
		<-blocked
		r.until("east", Waiting)
		if i := r.info("east"); i.Done <= 2000 || i.Fault == "" || secret(i.Fault) {
			t.Errorf("%s: %+v", tt.doc, i)
		}
		r.stop()
		f := folder(filepath.Join(r.dir, "packs", folderName, "east"))
		tt.cut(r, f)
		r.open()
		r.host(nil)
		first := len(r.asked)
		r.start()
		i := r.until("east", Done)
		r.equal("east", spansOf(t, q, 0, 4))
		r.stop()
		if r.sent-before > i.Bytes+atOnce*firstAsked || slices.Contains(r.asked[first:], "bytes=0-16383") {
			t.Errorf("%s: %d bytes after the plan, for %d: %q", tt.doc, r.sent-before, i.Bytes, r.asked[first:])
		}
		if n := names(t, filepath.Join(r.dir, "packs", folderName)); len(n) != 1 {
			t.Errorf("%s: %q", tt.doc, n)
		}
	}
}

// A source that changes, or a host that answers no ranges any more, fails the extract. It can begin
// again.
func TestChangedSource(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		change func(r *rig)
		want   error
	}{
		{"another tag", func(r *rig) { r.etag = `"2"` }, ErrChanged},
		{"If-Match is ignored", func(r *rig) {
			r.ask = func(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
				return r.serve(from, to, h, func(a *upstream.Answer) error {
					a.Header.Set("ETag", `"2"`)
					return take(a)
				})
			}
		}, ErrChanged},
		{"gone", func(r *rig) {
			r.ask = func(int64, int64, http.Header, func(*upstream.Answer) error) error {
				return &upstream.StatusError{Status: 410}
			}
		}, ErrChanged},
		{"no ranges", func(r *rig) {
			r.ask = func(int64, int64, http.Header, func(*upstream.Answer) error) error { return upstream.ErrTooLarge }
		}, ErrNoRanges},
		{"the ranges are damaged", func(r *rig) {
			if err := os.WriteFile(filepath.Join(r.dir, "packs", folderName, "east", rangesName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, errDamaged},
		{"the part is lost", func(r *rig) {
			if err := os.Remove(filepath.Join(r.dir, "packs", folderName, "east", partName)); err != nil {
				t.Fatal(err)
			}
		}, errDamaged},
		{"the part is cut", func(r *rig) {
			if err := os.Truncate(filepath.Join(r.dir, "packs", folderName, "east", partName), 9); err != nil {
				t.Fatal(err)
			}
		}, errDamaged},
	} {
		r := newRig(t)
		r.begin(east("east"))
		tt.change(r)
		r.start()
		i := r.until("east", Failed)
		if !strings.Contains(i.Fault, tt.want.Error()) {
			t.Errorf("%s: %+v", tt.doc, i)
		}
		r.reboot()
		if again := r.info("east"); again != i {
			t.Errorf("%s: after a restart %+v, want %+v", tt.doc, again, i)
		}
		if left := names(t, filepath.Join(r.dir, "packs", folderName, "east")); len(left) != 1 {
			t.Errorf("%s: %q", tt.doc, left)
		}
		r.ask = nil
		r.begin(east("east"))
		r.start()
		r.until("east", Done)
		r.stop()
	}
}

// A result that would not be served fails the extract, and the pack of its name serves on.
func TestRefusedResult(t *testing.T) {
	r := newRig(t)
	r.begin(east("east"))
	r.start()
	r.until("east", Done)
	r.source = bytes.Clone(r.source)
	for id := range uint64(341) {
		i := bytes.Index(r.source, packtest.Picture(id, 50))
		copy(r.source[i:], []byte{0x1f, 0x8b, 8, 0})
	}
	r.begin(east("east"))
	if i := r.until("east", Failed); !strings.Contains(i.Fault, "none of 39 tiles that were read decodes") {
		t.Errorf("%+v", i)
	}
	r.equal("east", spansOf(t, east("east"), 0, 4))
}

// After failures without progress an extract waits 5 s to 5 min, and others are read meanwhile.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		r.begin(east("ill"))
		var tries []time.Time
		r.host(func(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
			r.mu.Lock()
			ill := len(tries) < 12
			if ill {
				tries = append(tries, time.Now())
			}
			r.mu.Unlock()
			if ill {
				return &upstream.StatusError{Status: 503}
			}
			return r.serve(from, to, h, take)
		})
		r.start()
		synctest.Wait()
		if i := r.info("ill"); i.State != Waiting || !strings.Contains(i.Fault, "upstream_unavailable") || secret(i.Fault) {
			t.Errorf("%+v", i)
		}
		for i := r.info("ill"); i.State != Done && i.State != Failed; i = r.info("ill") {
			time.Sleep(time.Second)
		}
		r.until("ill", Done)
		var waits []time.Duration
		last := tries[0]
		for _, at := range tries {
			if d := at.Sub(last); d > 0 {
				waits = append(waits, d)
			}
			last = at
		}
		if len(waits) == 0 || waits[0] != leastWait || slices.Max(waits) > mostWait || !slices.IsSorted(waits) {
			t.Errorf("%v", waits)
		}
		if secret(r.log.String()) {
			t.Error(r.log.String())
		}
	})
}

// An extract is removed while the task works on it, with its folder and its room.
func TestRemoveWhileReading(t *testing.T) {
	r := newRig(t)
	r.begin(east("east"))
	blocked, open := make(chan struct{}, atOnce), make(chan struct{})
	r.host(func(int64, int64, http.Header, func(*upstream.Answer) error) error {
		blocked <- struct{}{}
		<-open
		return errTorn
	})
	r.start()
	<-blocked
	late, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("left"))
	if err := r.x.Remove(late, "east"); err == nil || err.Error() != "left" {
		t.Errorf("%v", err)
	}
	if _, err := r.x.Begin(t.Context(), east("east")); !errors.Is(err, ErrAnother) {
		t.Errorf("%v", err)
	}
	close(open)
	if err := r.x.Remove(t.Context(), "east"); err != nil && !errors.Is(err, pack.ErrMissing) {
		t.Error(err)
	}
	if n := names(t, filepath.Join(r.dir, "packs", folderName)); len(n)+len(r.x.List()) > 0 {
		t.Errorf("%q, %v", n, r.x.List())
	}
	r.host(nil)
	r.begin(east("east"))
	r.until("east", Done)
}

// An extract without room waits, and takes no more of the disk meanwhile.
func TestExtractWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		r.begin(east("east"))
		before := len(r.asked)
		r.packs.Spare = 1 << 60
		r.start()
		synctest.Wait()
		if i := r.info("east"); i.State != Waiting || !strings.Contains(i.Fault, "min_free") || len(r.asked) != before {
			t.Errorf("%+v, %d requests", i, len(r.asked)-before)
		}
		r.packs.Spare = 0
		r.until("east", Done) // asks at once, under a lock that the task takes after its wait
	})
}

// A line that cuts every answer slows an extract down, and does not end it: what has come of the
// first range that is missing is kept.
func TestExtractOverBadLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		i := r.begin(east("east"))
		before := r.sent
		r.host(func(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
			return r.serve(from, to, h, func(a *upstream.Answer) error {
				a.Body = io.LimitReader(a.Body, 9_000)
				return take(a)
			})
		})
		r.start()
		began := time.Now()
		for r.info("east").State != Done && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if now := r.info("east"); now.State != Done {
			t.Fatalf("after an hour: %+v", now)
		}
		t.Logf("it took %s", time.Since(began))
		r.equal("east", spansOf(t, east("east"), 0, 4))
		t.Logf("%d bytes sent for %d", r.sent-before, i.Bytes)
	})
}

// The rate bounds the bytes of all requests together.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(r *rig) { r.cfg.Extract.Rate = 50_000 })
		defer r.stop()
		i := r.begin(east("east"))
		began, before := time.Now(), r.sent
		r.start()
		r.until("east", Done)
		got, want := time.Since(began), time.Duration(float64(r.sent-before)/50_000*float64(time.Second))
		if got < want*9/10 || got > want*11/10 || want < 5*time.Second {
			t.Errorf("%d bytes in %s, want %s; %+v", r.sent-before, got, want, i)
		}
	})
}
