package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/packtest"
	"ronbox/engines/edge/pmtiles"
	"ronbox/store"
)

// tileSize is the size of a tile of the sources of tests.
const tileSize = 5000

var worldOf4 = sync.OnceValue(func() []byte { return packtest.World(4, tileSize) })

// rig is an extractor on a set of packs in a temporary folder. It is the owner, and the host.
type rig struct {
	t       testing.TB
	dir     string
	cfg     config.Config
	amnesia bool
	log     bytes.Buffer
	catalog *flow.Catalog
	store   *store.Store
	packs   *pack.Set
	sup     *flow.Supervisor
	x       *Extractor

	draining atomic.Bool

	mu     sync.Mutex // a leaf, guards what follows
	source []byte
	etag   string
	ask    func(from, to int64, h http.Header, take func(*upstream.Answer) error) error // nil: serve
	sent   int64
	asked  []string // ranges
	now    int      // requests under way
	most   int
}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), cfg: config.DefaultConfig(), source: worldOf4(), etag: `"1"`}
	r.cfg.Mode, r.cfg.Allow, r.cfg.CAS.MinFree = config.ModeLive, []string{"maps.example"}, 0
	for _, f := range change {
		f(r)
	}
	id, err := store.NewIdentity(time.Now())
	if err == nil {
		err = store.Create(filepath.Join(r.dir, "ronbox.db"), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.open()
	t.Cleanup(r.stop)
	return r
}

// open makes an extractor of the folder, without its task.
func (r *rig) open() {
	r.t.Helper()
	ctx := context.Background()
	m := obs.NewMetrics()
	log := hclog.New(&hclog.LoggerOptions{Output: &r.log, Mutex: &sync.Mutex{}})
	r.catalog = flow.NewCatalog(m, log)
	r.store = store.New(store.DefaultConfig(), store.Options{
		Path: filepath.Join(r.dir, "ronbox.db"), Catalog: r.catalog, Metrics: m,
		Producers: map[store.Lane][]string{store.Work: {"edge.verifier"}},
	})
	r.store.Declare(service, pack.Buckets()...)
	r.sup = flow.NewSupervisor(ctx, r.catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(ctx), r.store.Prepare(ctx)); err != nil {
		r.t.Fatal(err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.packs = pack.New("", r.cfg.Packs, pack.Deps{
		Catalog: r.catalog, Store: r.store, Log: log, DataDir: r.dir, Amnesia: r.amnesia, Event: func(pack.Info) {},
	})
	if err := r.packs.Recover(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.x = New(Deps{
		Catalog: r.catalog, Metrics: m, Log: log, Config: func() *config.Config { return &r.cfg }, Now: time.Now,
		Packs: r.packs, Amnesia: r.amnesia, Owner: r,
	})
	r.x.Recover()
}

func (r *rig) start() { r.sup.Start(r.x.Tasks()...) }

func (r *rig) stop() {
	if r.sup == nil {
		return
	}
	r.sup.CancelBackground()
	r.sup.Drain(service, 5*time.Second, time.Second)
	r.store.CloseLanes()
	r.sup.Drain("store", 5*time.Second, time.Second)
	r.sup.Close()
	r.packs.Close()
	if err := r.store.Close(); err != nil {
		r.t.Error(err)
	}
	r.sup = nil
}

func (r *rig) reboot() {
	r.stop()
	r.open()
}

func (r *rig) Event(asset.Event) {}

func (r *rig) Draining() bool { return r.draining.Load() }

// Ask answers as a host with the source.
func (r *rig) Ask(ctx context.Context, host string, q upstream.Request, take func(*upstream.Answer) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var from, to int64
	if _, err := fmt.Sscanf(q.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil || host != "maps.example" {
		r.t.Errorf("%s, %q: %v", host, q.Header.Get("Range"), err)
	}
	r.mu.Lock()
	r.asked = append(r.asked, q.Header.Get("Range"))
	r.now++
	r.most = max(r.most, r.now)
	ask := r.ask
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.now--
		r.mu.Unlock()
	}()
	if ask != nil {
		return ask(from, to, q.Header, take)
	}
	return r.serve(from, to, q.Header, take)
}

// serve answers with a range of the source.
func (r *rig) serve(from, to int64, h http.Header, take func(*upstream.Answer) error) error {
	r.mu.Lock()
	source, etag := r.source, r.etag
	r.mu.Unlock()
	if match := h.Get("If-Match"); match != "" && match != etag {
		return &upstream.StatusError{Status: http.StatusPreconditionFailed}
	}
	to = min(to, int64(len(source))-1)
	b := source[from : to+1]
	r.mu.Lock()
	r.sent += int64(len(b))
	r.mu.Unlock()
	return take(&upstream.Answer{
		Status: http.StatusPartialContent, Length: int64(len(b)), Body: bytes.NewReader(b),
		Header: http.Header{"Etag": {etag}, "Content-Range": {fmt.Sprintf("bytes %d-%d/%d", from, to, len(source))}},
	})
}

// host replaces the answers.
func (r *rig) host(ask func(from, to int64, h http.Header, take func(*upstream.Answer) error) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ask = ask
}

const sourceURL = "https://maps.example/world.pmtiles?secret=s3"

// east asks for the eastern hemisphere.
func east(pack string) Request {
	return Request{Pack: pack, URL: sourceURL, BBox: &[4]float64{0, -80, 180, 80}}
}

// begin begins an extract.
func (r *rig) begin(q Request) Info {
	r.t.Helper()
	i, err := r.x.Begin(context.Background(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return i
}

// info returns the extract of a pack.
func (r *rig) info(pack string) Info {
	for _, i := range r.x.List() {
		if i.Pack == pack {
			return i
		}
	}
	return Info{}
}

// until polls until the extract of a pack is in a state.
func (r *rig) until(pack string, want State) Info {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		i := r.info(pack)
		if i.State == want {
			return i
		}
		if time.Now().After(end) || i.State == Failed || i.State == Done {
			r.t.Fatalf("%s: %+v, want %s", pack, i, want)
		}
	}
}

// equal compares a pack with the source: it has the tiles of the spans.
func (r *rig) equal(id string, spans []pmtiles.Span) {
	r.t.Helper()
	for z := range uint8(5) {
		for x := range uint32(1) << z {
			for y := range uint32(1) << z {
				n := pmtiles.TileID(z, x, y)
				got, err := r.packs.Tile(context.Background(), pack.TileRef{Pack: id, Z: z, X: x, Y: y},
					func(pack.Coding) bool { return true })
				wanted := false
				for _, s := range spans {
					wanted = wanted || s.First <= n && n < s.End
				}
				switch {
				case wanted && (err != nil || !bytes.Equal(got.Bytes, packtest.Picture(n, tileSize))):
					r.t.Fatalf("%d/%d/%d: %d bytes, %v", z, x, y, len(got.Bytes), err)
				case !wanted && !errors.Is(err, pack.ErrNoTile) && !errors.Is(err, pack.ErrOutside):
					r.t.Fatalf("%d/%d/%d: %v, want no tile", z, x, y, err)
				}
				got.Close()
			}
		}
	}
}

// secret reports whether a text has the query of the source.
func secret(text string) bool { return strings.Contains(text, "s3") }

var errTorn = &asset.FillError{Reason: asset.UpstreamTruncated, Cause: io.ErrUnexpectedEOF}
