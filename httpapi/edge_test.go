package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/extract"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet/usage"
	"ronbox/httpapi"
	edgehttp "ronbox/httpapi/edge"
	edgeapi "ronbox/httpapi/wire/edge"
)

// fakeEdge has one object and one pack; err, when set, is what every call gets.
type fakeEdge struct {
	err      error
	public   string        // edge.public_url
	glyphs   string        // edge.style.glyphs
	noCORS   bool          // edge.cors is false
	within   time.Duration // that the last Asset had
	asked    string        // path and query of the last Asset
	rejected []string
	filled   bool     // Asset fetches the object
	sought   []string // paths of FetchAsset
	put      content.PutRequest
	upload   pack.Upload
	extract  extract.Request
	site     sites.Request
	found    site.Found // with each file of a site
	hits     atomic.Int64
	hold     chan struct{} // an Asset waits until it is closed; nil: none does
}

const (
	fakeAsset = "cdn.example/a.txt"
	fakePack  = "world"
	fakeNear  = "b3/ab5d8a8bd5a5b1ac2e6ba2f3a1cfb8b2f3c6e8b5d5b6a4f4b8b1a6b8c9d0e1f2"
	fakeFar   = "b3/1111111111111111111111111111111111111111111111111111111111111111" // on another node
)

var fakeBytes = []byte("0123456789")

func (f *fakeEdge) Config() *config.Config {
	c := config.DefaultConfig()
	c.PublicURL, c.CORS, c.Style.Glyphs = f.public, !f.noCORS, f.glyphs
	return &c
}

func (f *fakeEdge) Hit() { f.hits.Add(1) }

func (f *fakeEdge) Rejected(reason string) { f.rejected = append(f.rejected, reason) }

// FetchAsset knows one digest, for callers with the scope, and notes who asks.
func (f *fakeEdge) FetchAsset(_ context.Context, path string, _ netip.Addr, may func() bool) (*asset.Object, error) {
	f.sought = append(f.sought, path)
	if path != fakeFar || !may() {
		return nil, asset.ErrNotFound
	}
	return &asset.Object{
		Digest:    b3.Sum(fakeBytes),
		Size:      int64(len(fakeBytes)),
		Type:      "text/plain",
		Bytes:     fakeBytes,
		From:      asset.FromCAS,
		Filled:    true,
		Immutable: true,
	}, nil
}

func (f *fakeEdge) Placements() []placed.Placement {
	return []placed.Placement{{
		ID: "placement/docs", Content: "name:docs.example", State: placed.Fetching, Manifest: b3.Sum(fakeBytes),
		Objects: 3, Missing: 1, Wanted: 100, Bytes: 60, Reason: "no node has it",
	}}
}

func (f *fakeEdge) Asset(ctx context.Context, path, query string) (*asset.Object, error) {
	end, _ := ctx.Deadline()
	f.within, f.asked = time.Until(end), path+" ? "+query
	if f.hold != nil {
		<-f.hold
	}
	if f.err == nil && path != fakeAsset && path != fakeNear {
		return nil, asset.ErrNotFound
	}
	return &asset.Object{
		Digest: b3.Sum(fakeBytes),
		Size:   int64(len(fakeBytes)),
		Type:   "text/plain",
		Bytes:  fakeBytes,
		From:   asset.FromHot,
		Filled: f.filled,
	}, f.err
}

func fakeStored() tables.Stored {
	return tables.Stored{
		URL:    "https://" + fakeAsset,
		Path:   fakeAsset,
		Digest: b3.Sum(fakeBytes),
		Size:   int64(len(fakeBytes)),
		Type:   "text/plain",
	}
}

func (f *fakeEdge) Fill(_ context.Context, r fill.Request) (fill.Filled, error) {
	return fill.Filled{Stored: fakeStored(), New: r.Refresh}, f.err
}

func (f *fakeEdge) Verify(_ context.Context, o content.VerifyOptions) (content.Verified, error) {
	if f.err != nil {
		return content.Verified{}, f.err
	}
	o.Progress(5, 10)
	o.Found(
		content.Finding{
			Kind:  "object",
			Name:  b3.Sum(fakeBytes).String(),
			URL:   "https://" + fakeAsset,
			Size:  10,
			Fault: "rotten",
			Done:  content.Kept,
		},
	)
	return content.Verified{Objects: 1, Bytes: 10, Bad: 1}, nil
}

func (f *fakeEdge) Keys(_ context.Context, q content.KeyQuery) ([]content.KeyInfo, string, error) {
	return []content.KeyInfo{{Stored: fakeStored(), Pinned: q.Pinned, Used: time.Unix(5, 0)}}, "more", f.err
}

func (f *fakeEdge) Usage() (content.Usage, error) { return content.Usage{Bytes: 7, Objects: 1}, f.err }

func (f *fakeEdge) Keep(_ context.Context, do asset.Action, urls []string) (k asset.KeepResult, err error) {
	if k.Changed = urls; do == asset.Remove {
		k.Freed = 10
	}
	return k, f.err
}

func (f *fakeEdge) Statement(_ context.Context, epoch uint64) ([]byte, error) {
	s := usage.Statement{
		Genesis:     b3.Sum(fakeBytes),
		Node:        "node/a",
		Identity:    "12D3KooWa",
		Incarnation: "i",
		Epoch:       epoch,
		Length:      time.Hour,
		Head:        2,
		Rows:        []usage.Row{{Node: "node/b", Asked: 10, Objects: 1}},
	}
	return s.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))), f.err
}

func (f *fakeEdge) Put(_ context.Context, r content.PutRequest) (p content.Put, err error) {
	if f.err != nil {
		return p, f.err
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return p, err
	}
	d := b3.Sum(b)
	f.put = r
	p.Stored = tables.Stored{URL: d.String(), Path: "b3/" + d.String()[3:], Digest: d, Size: int64(len(b)), Type: r.Type}
	p.New = d != b3.Sum(fakeBytes)
	return p, nil
}

func (f *fakeEdge) Site(ctx context.Context, r sites.Request) (sites.File, error) {
	f.site = r
	if f.err == nil && strings.HasSuffix(r.Path, "dir") {
		return sites.File{}, site.ErrDirectory
	}
	o, err := f.Asset(ctx, fakeAsset, "")
	if err == nil {
		o.Type = site.TypeOf("a.html")
	}
	return sites.File{Object: o, Found: f.found, Age: 90 * time.Second}, err
}

// fakeExtracts has one extract.
type fakeExtracts struct{ edgehttp.Engine }

func (x fakeExtracts) info() extract.Info {
	return extract.Info{
		Pack: fakePack, URL: "https://" + fakeAsset + asset.Redacted, BBox: [4]float64{1, 2, 3, 4}, MaxZoom: 9,
		State: extract.Reading, Tiles: 7, Bytes: 1000, Done: 500, Requests: 3, Left: 2500 * time.Millisecond, ETag: `"1"`,
	}
}

func (x fakeExtracts) Begin(_ context.Context, q extract.Request) (extract.Info, error) {
	f := x.Engine.(*fakeEdge)
	f.extract = q
	return x.info(), f.err
}

func (x fakeExtracts) List() []extract.Info { return []extract.Info{x.info()} }

func (x fakeExtracts) Remove(_ context.Context, id string) error {
	if id != fakePack {
		return pack.ErrMissing
	}
	return x.Engine.(*fakeEdge).err
}

func (f *fakeEdge) info() pack.Info {
	return pack.Info{
		ID:          fakePack,
		Kind:        pack.PMTiles,
		State:       asset.PackVerified,
		Checked:     true,
		Size:        10,
		Digest:      b3.Sum(fakeBytes),
		Version:     "0123456789abcdef",
		MaxZoom:     3,
		Tiles:       85,
		Format:      "png",
		Bounds:      [4]float64{-180, -85, 180, 85},
		Attribution: "<b>us</b>",
	}
}

func (f *fakeEdge) List() []pack.Info { return []pack.Info{f.info()} }

func (f *fakeEdge) Info(id string) (pack.Info, error) {
	if f.err == nil && id != fakePack {
		return pack.Info{}, pack.ErrMissing
	}
	return f.info(), f.err
}

func (f *fakeEdge) Tile(_ context.Context, at pack.TileRef, _ func(pack.Coding) bool) (pack.Tile, error) {
	if at.X == 1 {
		return pack.Tile{}, pack.ErrNoTile
	}
	return pack.Tile{Bytes: fakeBytes, Format: "png", Digest: b3.Sum(fakeBytes), Version: "0123456789abcdef"}, f.err
}

// Upload takes any pack. It is new unless it has the id of the one that is there.
func (f *fakeEdge) Upload(_ context.Context, u pack.Upload) (pack.Info, bool, error) {
	b, err := io.ReadAll(u.Body)
	if err = cmp.Or(f.err, err); err != nil {
		return pack.Info{}, false, err
	}
	f.upload = u
	info := f.info()
	info.ID, info.Digest = strings.TrimSuffix(u.File, ".pmtiles"), b3.Sum(b)
	return info, info.ID != fakePack, nil
}

func (f *fakeEdge) Remove(file string) error {
	if f.err == nil && file != fakePack+".pmtiles" {
		return pack.ErrMissing
	}
	return f.err
}

func (f *fakeEdge) Rescan(context.Context) ([]pack.Info, error) { return f.List(), f.err }

func edgeCalls(ctx context.Context, c *apiClient) map[string]func() error {
	get := func(path string) func() error { return func() error { return only(c.EdgeBytes(ctx, path)) } }
	return map[string]func() error{
		"catalog": func() error { return only(c.Catalog(ctx)) },
		"tilejson": func() error {
			raw, err := c.EdgeBytes(ctx, "tiles/world.json")
			if err == nil &&
				!strings.Contains(
					string(raw),
					`"http://ronbox.socket/edge/tiles/world/{z}/{x}/{y}.png?v=0123456789abcdef"`,
				) {
				err = errors.New("tiles are elsewhere: " + string(raw))
			}
			return err
		},
		"usage":      func() error { return only(c.Usage(ctx, 20_000)) },
		"asset":      get("assets/" + fakeAsset),
		"object":     get("assets/" + fakeNear),
		"placements": func() error { return only(c.EdgePlacements(ctx)) },
		"tile":       get("tiles/world/1/0/0.png"),
		"no tile":    get("tiles/world/1/1/0.png"),
		"page":       get("preview/world"),
		"static":     get("static/preview.js"),
		"style":      get("styles/world.json"),
		"fill":       func() error { return only(c.Fill(ctx, edgeapi.Fill{URL: "https://" + fakeAsset})) },
		"put": func() error {
			o, err := c.PutObject(ctx, edgeapi.ObjectPut{Body: strings.NewReader("hello"), Size: 5, Announce: true})
			if err == nil && (o.B3 != b3.Sum([]byte("hello")).String() || !o.New || !o.Pinned) {
				err = fmt.Errorf("%+v", o)
			}
			return err
		},
		"put again": func() error {
			o, err := c.PutObject(ctx, edgeapi.ObjectPut{Body: bytes.NewReader(fakeBytes), Size: int64(len(fakeBytes))})
			if err == nil && o.New {
				err = fmt.Errorf("%+v", o)
			}
			return err
		},
		"put pack": func() error {
			p, err := c.PutPack(ctx, edgeapi.PackPut{File: "new.pmtiles", Body: strings.NewReader("hello"), Size: 5,
				Expect: b3.Sum([]byte("hello"))})
			if err == nil && (p.ID != "new" || p.ETag != b3.Sum([]byte("hello")).String()) {
				err = fmt.Errorf("%+v", p)
			}
			return err
		},
		"replace pack": func() error {
			return only(c.PutPack(ctx, edgeapi.PackPut{File: "world.pmtiles", Body: strings.NewReader("hello"), Size: 5}))
		},
		"remove pack": func() error { return c.RemovePack(ctx, "world.pmtiles") },
		"extracts": func() error {
			l, err := c.Extracts(ctx)
			if err == nil && (len(l.Extracts) != 1 || l.Extracts[0].DoneBytes != 500) {
				err = fmt.Errorf("%+v", l)
			}
			return err
		},
		"extract": func() error {
			return only(c.Extract(ctx, edgeapi.ExtractStart{URL: "https://a.example/b", Pack: "world"}))
		},
		"plan extract": func() error {
			return only(c.Extract(ctx, edgeapi.ExtractStart{URL: "https://a.example/b", Pack: "world", DryRun: true}))
		},
		"remove extract": func() error { return c.RemoveExtract(ctx, "world") },
		"site":           get("sites/docs.example/"),
		"rescan":         func() error { return only(c.Rescan(ctx)) },
		"keys": func() error {
			l, err := c.EdgeKeys(ctx, "https://", "", 10, true)
			if err == nil &&
				(len(l.Keys) != 1 || !l.Keys[0].Pinned || l.Keys[0].Missing || l.Keys[0].B3 != b3.Sum(fakeBytes).String() || l.Next != "more") {
				err = fmt.Errorf("%+v", l)
			}
			return err
		},
		"store": func() error {
			s, err := c.EdgeStore(ctx)
			if err == nil && (s.Bytes != 7 || s.Objects != 1) {
				err = fmt.Errorf("%+v", s)
			}
			return err
		},
		"pin":   func() error { return only(c.EdgeKeep(ctx, asset.Pin, []string{"https://" + fakeAsset})) },
		"unpin": func() error { return only(c.EdgeKeep(ctx, asset.Unpin, []string{"https://" + fakeAsset})) },
		"rm": func() error {
			k, err := c.EdgeKeep(ctx, asset.Remove, []string{"https://" + fakeAsset})
			if err == nil && (len(k.Changed) != 1 || k.Freed != 10) {
				err = fmt.Errorf("%+v", k)
			}
			return err
		},
		"verify": func() error {
			found, sum, err := c.Verify(ctx, edgeapi.Verify{Fix: true}, nil)
			if err == nil && (len(found) != 1 || found[0].Fault != "rotten" || sum.Bad != 1) {
				err = fmt.Errorf("%+v, %+v", found, sum)
			}
			return err
		},
	}
}

// The path of an asset reaches the engine as it is spelt, also when it ends with a slash, and so
// does its query.
func TestAssetIsAskedForAsSpelt(t *testing.T) {
	r := newRig(t)
	r.undescribed = true
	for target, want := range map[string]string{
		"cdn.example/":         "cdn.example/ ? ",
		"cdn.example/d/?":      "cdn.example/d/ ? ",
		"cdn.example/a%20b":    "cdn.example/a%20b ? ",
		"cdn.example/a?x;y=%z": "cdn.example/a ? x;y=%z",
		"cdn.example/a%3Fx?&&": "cdn.example/a%3Fx ? &&",
	} {
		if r.do(http.MethodGet, "/edge/assets/"+target, "", nil); r.edge.asked != want {
			t.Errorf("%s: asked for %q, want %q", target, r.edge.asked, want)
		}
	}
}

// edgeCases is each refusal of the edge, and the seed's word for it in edge_rejects_total.
func edgeCases() []problemCase {
	fill := func(r asset.Reason, status int, retry bool) problemCase {
		return problemCase{
			&asset.FillError{Reason: r, URL: "https://" + fakeAsset, Tries: 2},
			status,
			string(r),
			retry,
		}
	}
	return []problemCase{
		fill(asset.NotAllowed, 403, false),
		fill(asset.UpstreamNotFound, 404, false),
		fill(asset.ETagInvalid, 424, false),
		fill(asset.DigestMismatch, 424, false),
		fill(asset.NotCacheable, 424, false),
		fill(asset.ObjectCap, 424, false),
		fill(asset.Upstream4xx, 424, false),
		fill(asset.Upstream5xx, 502, true),
		fill(asset.UpstreamConnect, 502, true),
		fill(asset.UpstreamTruncated, 502, true),
		fill(asset.RedirectLoop, 502, false),
		fill(asset.Timeout, 503, true),
		fill(asset.UpstreamUnavailable, 503, true),
		fill(asset.UpstreamUnframed, 502, false),
		{&asset.PinsError{Bytes: 2, MaxBytes: 1}, 409, "pins_full", false},
		{&asset.PathError{Path: "a", Reason: "has a dotted segment"}, 400, "bad_path", false},
		{pack.ErrBadTile, 400, "bad_tile", false},
		{asset.ErrNotFound, 404, "not_found", false},
		{pack.ErrMissing, 404, "not_found", false},
		{pack.ErrNoRaw, 404, "not_found", false},
		{pack.ErrOutside, 404, "not_found", false},
		{asset.ErrOffline, 403, "not_allowed", false},
		{pack.ErrCoding, 406, "not_acceptable", false},
		{pack.ErrTooLarge, 406, "tile_too_large", false},
		{&asset.RateError{Wait: time.Second}, 429, "rate_limit", true},
		{flow.ErrBusy, 429, "busy", true},
		{asset.ErrAmnesia, 503, "amnesia", false},
		{asset.ErrFull, 503, "cas_full", true},
		{fmt.Errorf("%w: %w", asset.ErrDisk, syscall.EIO), 503, "storage", true},
		{asset.ErrStore, 503, "cas_unavailable", true},
		{asset.ErrCorrupt, 503, "corrupt", true},
		{errors.Join(asset.ErrCorrupt, flow.ErrBusy), 503, "corrupt", true},
		{pack.ErrPending, 503, "pack_verifying", true},
		{pack.ErrFailed, 503, "pack_failed", false},
		{asset.ErrNames, 503, "names_unavailable", true},
		{asset.ErrType, 400, "malformed", false},
		{&asset.SizeError{Max: 1}, 413, "body_cap", false},
		{&asset.DigestError{}, 422, "other_digest", false},
		{&pack.RefusedError{Faults: []string{"cut", "odd"}}, 422, "pack_refused", false},
		{&pack.RoomError{Reason: "full"}, 507, "packs_full", false},
		{pack.ErrName, 400, "malformed", false},
		{&extract.RegionError{Member: "/bbox", Reason: "is empty"}, 400, "bad_region", false},
		{&extract.ManyError{Zoom: 3, Most: 9}, 422, "too_many_tiles", false},
		{extract.ErrNoRanges, 424, "no_ranges", false},
		{extract.ErrChanged, 424, "source_changed", false},
		{extract.ErrFull, 429, "extracts_full", true},
		{extract.ErrAnother, 422, "pack_refused", false},
		{&asset.SiteError{Cause: &site.Error{Reason: "is empty"}}, 502, "bad_manifest", false},
		{&asset.MissingError{Cause: asset.ErrNotFound}, 504, "missing", true},
		{&asset.MissingError{Cause: context.DeadlineExceeded}, 504, "missing", true},
		{context.DeadlineExceeded, 503, "timeout", true},
		{flow.ErrClosed, 503, "draining", true},
		{flow.ErrCanceled, 503, "canceled", true},
	}
}

// Each refusal of the edge has its status, its words and, where another try may help, how long to
// wait; it is counted once, under the seed's word.
func TestEdgeRefusals(t *testing.T) {
	r := newRig(t)
	r.undescribed = true
	for _, tt := range edgeCases() {
		r.edge.err, r.edge.rejected = tt.err, nil
		w := r.do(http.MethodGet, "/edge/assets/"+fakeAsset, "", nil)
		p := problemIn(t, w.Body.String())
		if w.Code != tt.status || p.Reason != tt.reason || p.Retryable != tt.retry {
			t.Errorf("%v: %d %s %t, want %d %s %t", tt.err, w.Code, p.Reason, p.Retryable, tt.status, tt.reason,
				tt.retry)
		}
		if wait := w.Header().
			Get("Retry-After"); (wait != "") != (tt.retry || tt.reason == "amnesia") {
			t.Errorf("%v: Retry-After %q", tt.err, wait)
		}
		word := tt.reason
		if word == "busy" {
			word = "rate_limit"
		}
		if len(r.edge.rejected) != 1 || r.edge.rejected[0] != word {
			t.Errorf("%v: counted as %q, want %q", tt.err, r.edge.rejected, word)
		}
	}
}

// A fill that the queue has no room for is counted as busy, by the endpoint that wanted it, as is
// one that comes too often; a full store is not.
func TestBusyFillsAreCounted(t *testing.T) {
	r := newRig(t)
	for _, err := range []error{flow.ErrBusy, &asset.RateError{Wait: time.Second}, asset.ErrFull} {
		r.edge.err = err
		r.do(http.MethodGet, "/edge/assets/"+fakeAsset, "", nil)
		r.do(http.MethodPost, "/edge/fills", `{"url":"https://`+fakeAsset+`"}`, writer)
	}
	for _, endpoint := range []string{"/edge/assets", "/edge/fills"} {
		if got := sum(t, r.metrics, "busy_rejections_total", "service", "edge", "endpoint", endpoint); got != 2 {
			t.Errorf("busy_rejections_total{endpoint=%q} = %v, want 2", endpoint, got)
		}
	}
}

// The URLs of tiles begin with edge.public_url where that is set.
func TestPublicURL(t *testing.T) {
	r := newRig(t)
	for _, public := range []string{"https://maps.example", "https://maps.example/"} {
		r.edge.public = public
		w := r.do(http.MethodGet, "/edge/tiles/world.json", "", nil)
		if want := `["https://maps.example/edge/tiles/world/{z}/{x}/{y}.png?v=0123456789abcdef"]`; w.Code != http.StatusOK ||
			!strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", public, w.Code, w.Body)
		}
	}
}

// A style names the TileJSON by its whole URL. Its tag changes with it; a client that has it gets 304.
func TestStyle(t *testing.T) {
	r := newRig(t)
	get := func(path string, h map[string]string) *httptest.ResponseRecorder {
		return r.do(http.MethodGet, "/edge/styles/"+path, "", h)
	}
	w := get("world.json", nil)
	tag := w.Header().Get("ETag")
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-cache" || !strings.HasPrefix(tag, `"b3:`) ||
		!strings.Contains(w.Body.String(), `"http://example.com/edge/tiles/world.json"`) ||
		strings.Contains(w.Body.String(), "glyphs") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := get("world.json", map[string]string{"If-None-Match": tag}); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("the same style: %d %s", w.Code, w.Body)
	}
	if w := r.do(http.MethodGet, "/edge/catalog", "", nil); !strings.Contains(w.Body.String(), `"style":"/edge/styles/world.json"`) {
		t.Errorf("the catalog: %s", w.Body)
	}
	r.edge.public, r.edge.glyphs = "https://maps.example/", "https://fonts.example/{fontstack}/{range}.pbf"
	w = get("world.json", map[string]string{"If-None-Match": tag})
	for _, want := range []string{
		`"https://maps.example/edge/tiles/world.json"`, `"glyphs":"https://fonts.example/{fontstack}/{range}.pbf"`,
	} {
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}

// A pack that is not served has no style, with the refusal of its TileJSON.
func TestNoStyle(t *testing.T) {
	r := newRig(t)
	for _, err := range []error{
		nil, &pack.Error{ID: fakePack, State: asset.PackVerifying}, &pack.Error{ID: fakePack, State: asset.PackOpening},
	} {
		for _, file := range []string{"none.json", "world", "world.js", ".json", "world.json"} {
			if r.edge.err = err; err == nil && file == "world.json" {
				continue
			}
			var got [2]string
			for i, folder := range []string{"styles/", "tiles/"} {
				w := r.do(http.MethodGet, "/edge/"+folder+file, "", nil)
				got[i] = fmt.Sprint(w.Code, " ", problemIn(t, w.Body.String()).Reason)
			}
			if got[0] != got[1] || !strings.HasPrefix(got[0], "404") && !strings.HasPrefix(got[0], "503") {
				t.Errorf("%v, %s: %s, its TileJSON %s", err, file, got[0], got[1])
			}
		}
	}
}

// An answer with an asset or a tile that is stored is a hit, also if it is empty because the client
// has it.
func TestEdgeHits(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		target string
		header map[string]string
		filled bool
		hits   int64
	}{
		{"/edge/assets/" + fakeAsset, nil, false, 1},
		{"/edge/assets/" + fakeAsset, map[string]string{"If-None-Match": `"` + b3.Sum(fakeBytes).String() + `"`}, false, 1},
		{"/edge/assets/" + fakeAsset, map[string]string{"Range": "bytes=9-2"}, false, 0},
		{"/edge/assets/" + fakeAsset, nil, true, 0},
		{"/edge/assets/cdn.example/none", nil, false, 0},
		{"/edge/tiles/world/1/0/0.png", nil, false, 1},
		{"/edge/tiles/world/1/1/0.png", nil, false, 0},
		{"/edge/tiles/world.json", nil, false, 0},
	} {
		r.edge.filled = tt.filled
		before := r.edge.hits.Load()
		w := r.do(http.MethodGet, tt.target, "", tt.header)
		if n := r.edge.hits.Load() - before; n != tt.hits {
			t.Errorf("%s, %v, filled %v: %d, %d hits, want %d", tt.target, tt.header, tt.filled, w.Code, n, tt.hits)
		}
	}
}

// The edge's own metrics count refusals of the frame too.
func TestEdgeHearsOfEveryRefusal(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.MaxBody = 2048 })
	zeros := gzipped(t, strings.Repeat("0", 1<<20))
	for _, tt := range []struct {
		method, target, body string
		header               map[string]string
		status               int
		word                 string
	}{
		{"GET", "/edge/assets/" + fakeAsset, "", map[string]string{"Range": "bytes=9-2"}, 416, "invalid_range"},
		{"GET", "/edge/tiles/world/1/0/2.png", "", nil, 400, "bad_tile"},
		{"GET", "/edge/tiles/world/1/00/0.png", "", nil, 400, "bad_tile"},
		{"GET", "/edge/tiles/world/1/0/0.jpg", "", nil, 400, "bad_ext"},
		{"GET", "/edge/tiles/world/1/0%2f0.png", "", nil, 400, "bad_path"},
		{"GET", "/edge/assets/" + fakeAsset, "x", nil, 400, "malformed"},
		{"POST", "/edge/fills", `{"url":"` + strings.Repeat("x", 4096) + `"}`, map[string]string{"Content-Type": "application/json"}, 413, "body_cap"},
		{"POST", "/edge/fills", zeros, map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, 400, "decompress_cap"},
	} {
		r.edge.rejected = nil
		if tt.method == "POST" {
			tt.header["Authorization"] = writer["Authorization"]
		}
		if w := r.do(tt.method, tt.target, tt.body, tt.header); w.Code != tt.status || len(r.edge.rejected) != 1 ||
			r.edge.rejected[0] != tt.word {
			t.Errorf("%s %s: %d, counted as %q, want %d as %s\n%s", tt.method, tt.target, w.Code, r.edge.rejected,
				tt.status, tt.word, w.Body)
		}
	}
}

// The bounds of a service lower those of the node for its bodies. They raise none, and do not concern
// other services.
func TestBodyLimitsOfAService(t *testing.T) {
	wide := `{"url":"https://cdn.example/` + strings.Repeat("0", 3000) + `"}`
	plain := header{"Content-Type": "application/json", "Authorization": writer["Authorization"]}
	packed := header{"Content-Encoding": "gzip"}
	maps.Copy(packed, plain)
	for _, tt := range []struct {
		limits httpapi.BodyLimits
		body   string
		header header
		want   int
		reason string
	}{
		{httpapi.BodyLimits{}, wide, plain, 413, httpapi.ReasonBodyCap},
		{httpapi.BodyLimits{Bytes: 2 << 10}, wide[:2<<10], plain, 400, "schema"},
		{httpapi.BodyLimits{Bytes: 1 << 10}, wide[:2<<10], plain, 413, httpapi.ReasonBodyCap},
		{httpapi.BodyLimits{Bytes: 4 << 10}, wide, plain, 413, httpapi.ReasonBodyCap},
		{httpapi.BodyLimits{Ratio: 3}, gzipped(t, wide), packed, 400, httpapi.ReasonRatioCap},
		{httpapi.BodyLimits{Inflated: 1 << 10}, gzipped(t, wide), packed, 400, httpapi.ReasonInflateCap},
	} {
		r := newRig(t, func(c *httpapi.Settings, _ *deps) {
			c.Server.MaxBody, c.Server.RatioCap = 2<<10, 1000
			c.Limits[serviceEdge] = httpapi.Limits{Inflight: 512, Body: tt.limits}
		})
		w := r.do("POST", "/edge/fills", tt.body, tt.header)
		if got := problemIn(t, w.Body.String()); w.Code != tt.want || got.Reason != tt.reason {
			t.Errorf("%+v: %d %+v, want %d %s", tt.limits, w.Code, got, tt.want, tt.reason)
		}
		if w := r.do("POST", "/v1/transfer", someTransfer+strings.Repeat(" ", 1500), writer); w.Code != 200 {
			t.Errorf("%+v: a transfer: %d %s", tt.limits, w.Code, w.Body)
		}
	}
}

// A request for an asset may limit its waiting time. A malformed header is ignored, and the node's
// own limit stays.
func TestEdgeTakesHintsOfTime(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name, value string
		within      time.Duration
	}{
		{"X-None", "", httpapi.DefaultDeadline}, {"Request-Timeout", "2", 2 * time.Second}, {"Request-Timeout", "600", httpapi.DefaultDeadline},
		{"Request-Timeout", "soon", httpapi.DefaultDeadline}, {"Request-Timeout", "0", httpapi.DefaultDeadline}, {"Request-Timeout", "-1", httpapi.DefaultDeadline},
		{"Deadline", "yesterday", httpapi.DefaultDeadline}, {"Deadline", "", httpapi.DefaultDeadline},
	} {
		w := r.do(http.MethodGet, "/edge/assets/"+fakeAsset, "", header{tt.name: tt.value})
		if longer := r.edge.within > 2*time.Second; w.Code != http.StatusOK || r.edge.within > tt.within ||
			longer != (tt.within > 2*time.Second) {
			t.Errorf("%s %q: %d, within %s, want %s", tt.name, tt.value, w.Code, r.edge.within, tt.within)
		}
	}
}

// What is not stored is sought in the fleet, for callers with the scope edge.fetch, but never for
// another node that seeks it itself.
func TestEdgeFetchesFromFleet(t *testing.T) {
	r := newRig(t)
	hop := header{near.HopHeader: "0", "Authorization": "Bearer good"}
	for _, tt := range []struct {
		doc, path      string
		h              header
		status, sought int
	}{
		{"with the scope", fakeFar, writer, 200, 1},
		{"a stranger", fakeFar, nil, 404, 1},
		{"a token that is not known", fakeFar, header{"Authorization": "Bearer bad"}, 404, 1},
		{"a node, with the scope", fakeFar, hop, 404, 0},
		{"a stored object", fakeAsset, nil, 200, 0},
	} {
		r.edge.sought = nil
		w := r.do(http.MethodGet, "/edge/assets/"+tt.path, "", tt.h)
		if w.Code != tt.status || len(r.edge.sought) != tt.sought {
			t.Errorf("%s: %d, sought %q", tt.doc, w.Code, r.edge.sought)
		}
	}
}
