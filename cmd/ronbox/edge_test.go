package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	edgeapi "ronbox/httpapi/wire/edge"
	"ronbox/store"
)

// assetHost serves different content on every path, over TLS, until it is closed.
type assetHost struct {
	*httptest.Server
	name   string // as edge.allow spells it
	closed atomic.Bool
}

// assetBytes returns the content of an asset, up to 1.2 MiB, so that only some assets fit in
// memory.
func assetBytes(n int) []byte {
	out := make([]byte, 1+(n*7919)%(1200<<10))
	for i := range out {
		out[i] = byte(i*n + i>>8)
	}
	return out
}

func newAssetHost(t *testing.T) (h *assetHost, caFile string) {
	t.Helper()
	h, a, dir := &assetHost{}, newAuthority(t), t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.issue(t, 2, certFile, keyFile)
	writePEM(t, a.file, "CERTIFICATE", a.cert.Raw)
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/a/%d", &n); err != nil || h.closed.Load() {
			http.Error(w, "closed", http.StatusInternalServerError)
			return
		}
		body := assetBytes(n)
		w.Header().Set("Etag", fmt.Sprintf(`"%d"`, n))
		for len(body) > 0 { // slowly, so that some fills are always in progress
			part := min(len(body), 64<<10)
			_, _ = w.Write(body[:part])
			body = body[part:]
			_ = http.NewResponseController(w).Flush()
		}
	}))
	h.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	h.StartTLS()
	t.Cleanup(h.Close)
	u, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	h.name = "localhost:" + u.Port()
	return h, a.file
}

// swapPack replaces p.pmtiles by a rename, as an operator does.
func swapPack(t *testing.T, dir string, packs [][]byte, n int) {
	t.Helper()
	tmp := filepath.Join(dir, "new.part")
	if err := os.WriteFile(tmp, packs[n%len(packs)], 0o600); err != nil {
		t.Error(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "p.pmtiles")); err != nil {
		t.Error(err)
	}
}

// A node is killed while it fetches assets and while its packs are replaced. It keeps every
// acknowledged asset, byte for byte: every row has its object, every object matches its hash, no
// partial file is left, and the pack is one of the packs that the test installed.
func TestKill9Edge(t *testing.T) {
	skipRaceOnly(t)
	tellSeed(t)
	t.Parallel()
	cycles := killCycles(2, 10, 5)
	host, ca := newAssetHost(t)
	b, d := newDiskBox(t), draws(t, "kills")
	b.env = append(b.env, "RONBOX_EDGE__MODE=live", "RONBOX_EDGE__ALLOW="+host.name,
		"RONBOX_EDGE__ALLOW_PRIVATE=127.0.0.0/8,::1/128", "RONBOX_EDGE__CA_FILE="+ca,
		"RONBOX_EDGE__INGRESS__RPS_LIMIT=100000")
	packsDir := filepath.Join(b.dir, "packs")
	if err := os.MkdirAll(packsDir, 0o700); err != nil {
		t.Fatal(err)
	}
	var packs [][]byte
	for _, name := range []string{"stamen_toner_z3.pmtiles", "usgs-mt-whitney-8-15-webp-512.pmtiles"} {
		raw, err := os.ReadFile(filepath.Join("../../testdata/packs", name))
		if err != nil {
			t.Fatal(err)
		}
		packs = append(packs, raw)
	}
	swapPack(t, packsDir, packs, 0)
	var mu sync.Mutex
	acked, acks := map[int]edgeapi.Object{}, 0
	for i := range cycles {
		host.closed.Store(false)
		p := b.start(t)
		b.stormEdge(t, d, p, host, func(n int, o edgeapi.Object) { mu.Lock(); acked[n] = o; acks++; mu.Unlock() },
			func(n int) { swapPack(t, packsDir, packs, n) })
		host.closed.Store(true)
		p = b.start(t)
		b.checkEdge(t, i, acked, packs)
		if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone || t.Failed() {
			t.Fatalf("cycle %d: exit %d\n%s", i, code, p.stderr)
		}
		b.checkObjects(t, i)
	}
	t.Logf("%d kills, %d fills acknowledged", cycles, acks)
}

// stormEdge fetches assets and replaces packs until the node is killed. The kill comes a while
// after the first acknowledged fill, with other fills in progress.
func (b *box) stormEdge(
	t *testing.T,
	d *rand.Rand,
	p *process,
	host *assetHost,
	ack func(int, edgeapi.Object),
	swap func(int),
) {
	t.Helper()
	c := b.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var filled atomic.Bool
	for range 4 {
		seed := d.Uint64()
		wg.Go(func() {
			for own := rand.New(rand.NewPCG(seed, 1)); ctx.Err() == nil; {
				n := own.IntN(400)
				if o, err := c.Fill(
					ctx,
					edgeapi.Fill{URL: "https://" + host.name + fmt.Sprint("/a/", n), Refresh: own.IntN(4) == 0},
				); err == nil {
					ack(n, o)
					filled.Store(true)
				}
			}
		})
	}
	wg.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			swap(n)
			_, _ = c.Rescan(ctx)
		}
	})
	until(t, "a fill is acknowledged", filled.Load)
	time.AfterFunc(drawTime(d, 500*time.Millisecond), func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
	<-p.done
	cancel()
	wg.Wait()
}

// checkEdge compares the stored content of a node with the acknowledged assets. The origin of the
// assets no longer answers.
func (b *box) checkEdge(t *testing.T, cycle int, acked map[int]edgeapi.Object, packs [][]byte) {
	t.Helper()
	c := b.client(t)
	for n, o := range acked {
		want := assetBytes(n)
		if o.B3 != b3.Sum(want).String() {
			t.Errorf("cycle %d: asset %d was acknowledged as %s", cycle, n, o.B3)
		}
		if got, err := c.EdgeBytes(t.Context(), o.Path[len("/edge/"):]); err != nil || !bytes.Equal(got, want) {
			t.Errorf("cycle %d: asset %d: %d bytes, want %d: %v", cycle, n, len(got), len(want), err)
		}
	}
	left, err := filepath.Glob(filepath.Join(b.dir, "edge", "cas", "tmp", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("cycle %d: left over: %q %v", cycle, left, err)
	}
	until(t, "the pack is verified", func() bool {
		all, err := c.Catalog(t.Context())
		return err == nil && len(all.Packs) == 1 && all.Packs[0].State == "verified"
	})
	raw, err := c.EdgeBytes(t.Context(), "assets/p.pmtiles")
	if err != nil || !slices.ContainsFunc(packs, func(p []byte) bool { return bytes.Equal(p, raw) }) {
		t.Errorf("cycle %d: a pack of %d bytes that was never put there: %v", cycle, len(raw), err)
	}
}

// checkObjects compares the rows of a stopped node with its files: each object has one row and one
// file, and the file has the bytes that the hash names.
func (b *box) checkObjects(t *testing.T, cycle int) {
	t.Helper()
	f, err := store.OpenReader(filepath.Join(b.dir, "ronbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows := 0
	if err := f.View(t.Context(), func(r store.Reader) error {
		for name := range r.Range(&store.Bucket{Name: "edge/blobs"}, nil, nil) {
			text := hex.EncodeToString(name)
			raw, err := os.ReadFile(filepath.Join(b.dir, "edge", "cas", "b3", text[:2], text[2:]))
			if sum := b3.Sum(raw); err != nil || !bytes.Equal(sum[:], name) {
				t.Errorf("cycle %d: object %s: %v", cycle, text, err)
			}
			rows++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(
		filepath.Join(b.dir, "edge", "cas", "b3", "*", "*"),
	); err != nil || len(files) != rows ||
		rows == 0 {
		t.Errorf("cycle %d: %d files, %d rows, %v", cycle, len(files), rows, err)
	}
}
