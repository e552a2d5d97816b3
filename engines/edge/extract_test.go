package edge_test

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/extract"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/packtest"
	"ronbox/engines/edge/pmtiles"
)

// Levels of the archive of a mapHost, and the size of its tiles.
const (
	mapLevels = 5
	mapTile   = 30_000
)

var mapBytes = sync.OnceValue(func() []byte { return packtest.World(mapLevels, mapTile) })

// mapHost serves an archive in ranges, and counts the bytes that it sends.
type mapHost struct {
	*host
	sent atomic.Int64
	ill  atomic.Bool // it answers 503
}

func newMapHost(t testing.TB) *mapHost {
	m := &mapHost{}
	m.host = newHost(t, func(w http.ResponseWriter, q *http.Request) {
		if m.ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(counting{w, &m.sent}, q, "", time.Time{}, bytes.NewReader(mapBytes()))
	})
	return m
}

// counting counts the bytes of answers.
type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

func (m *mapHost) url() string { return "https://" + m.name + "/world.pmtiles" }

// west asks for the western hemisphere.
func (m *mapHost) west(id string) extract.Request {
	return extract.Request{Pack: id, URL: m.url(), BBox: &[4]float64{-180, -90, 0, 90}}
}

// state returns the state of an extract.
func (r *rig) state(id string) (i extract.Info) {
	for _, i = range r.e.Extracts().List() {
		if i.Pack == id {
			return i
		}
	}
	return extract.Info{}
}

// isWorld compares every tile of a pack with the source, of which it has the western half or all.
func (r *rig) isWorld(id string, half bool) {
	r.t.Helper()
	for z := range uint8(mapLevels + 1) {
		for x := range uint32(1) << z {
			for y := range uint32(1) << z {
				got, err := r.e.Packs().Tile(context.Background(), pack.TileRef{Pack: id, Z: z, X: x, Y: y},
					func(pack.Coding) bool { return true })
				want := packtest.Picture(pmtiles.TileID(z, x, y), mapTile)
				if inside := !half || x < max(1, uint32(1)<<z/2); inside && (err != nil || !bytes.Equal(got.Bytes, want)) ||
					!inside && err == nil {
					r.t.Fatalf("%s %d/%d/%d: %d bytes, %v", id, z, x, y, len(got.Bytes), err)
				}
				got.Close()
			}
		}
	}
}

// An extract of a host over TLS goes on after the host was away and after a restart, and its bytes
// are counted.
func TestExtractFromHost(t *testing.T) {
	t.Parallel()
	h := newMapHost(t)
	r := newRig(t, on(h.host))
	i, err := r.e.Extracts().Begin(t.Context(), h.west("west"))
	if err != nil || i.Bytes < mapTile*682 {
		t.Fatalf("%+v, %v", i, err)
	}
	h.ill.Store(true)
	r.start()
	until(t, "it waits", func() bool { return r.state("west").Fault != "" })
	h.ill.Store(false)
	r.reboot()
	until(t, "it is done", func() bool { return r.state("west").State == extract.Done })
	r.isWorld("west", true)
	if sent := h.sent.Load(); sent > i.Bytes*11/10 {
		t.Errorf("the host has sent %d bytes for %d", sent, i.Bytes)
	}
	if n := r.count("edge_extract_bytes_total"); int64(n) < i.Bytes-20_000 || int64(n) > i.Bytes*11/10 {
		t.Errorf("%v bytes are counted for %d", n, i.Bytes)
	}
	if info, err := r.e.Packs().Info("west"); err != nil || info.State != asset.PackVerified {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := r.e.Extracts().Begin(t.Context(), extract.Request{Pack: "x", URL: "https://b.example/x"}); reason(err) !=
		asset.NotAllowed {
		t.Errorf("another host: %v", err)
	}
}
