package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	edgeapi "ronbox/httpapi/edge"
)

const packsFolder = "../../../testdata/packs"

// mapNode is a dev node with three packs and with limits of connections that no test reaches.
func mapNode(t *testing.T, change func(*config.Config)) *rig {
	t.Helper()
	return mapNodeWith(t, Options{}, change)
}

func mapNodeWith(t *testing.T, o Options, change func(*config.Config)) *rig {
	t.Helper()
	cfg, _ := devConfig(t)
	must(t, initdir.CopyPacks(cfg, packsFolder))
	cfg.Server.MaxConns, cfg.Server.PerIP = 8192, 8192
	if change != nil {
		change(cfg)
	}
	r := launchWith(t, cfg, o).begin()
	for _, p := range r.services.Edge().Packs().List() {
		r.await(p.ID+" to be verified", func() bool {
			now, err := r.services.Edge().Packs().Info(p.ID)
			return err == nil && now.State == "verified"
		})
	}
	return r
}

// get sends a GET over TCP.
func (r *rig) get(path string, h http.Header) (*http.Response, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
	must(r.t, err)
	for name, v := range h {
		req.Header[name] = v
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(req)
	must(r.t, err)
	body, err := io.ReadAll(resp.Body)
	must(r.t, err)
	must(r.t, resp.Body.Close())
	return resp, body
}

// storedTile is a tile as it is stored in its pack.
type storedTile struct {
	path, coding string
	raw          []byte
}

// tilesOfMBTiles reads a pack with its own query.
func tilesOfMBTiles(t *testing.T, file, id string) (all []storedTile) {
	t.Helper()
	db, err := sqlite.OpenConn("file:"+file+"?immutable=1", sqlite.OpenReadOnly|sqlite.OpenURI)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	must(
		t,
		sqlitex.Execute(
			db,
			"SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles",
			&sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
				z := s.ColumnInt64(0)
				raw := make([]byte, s.ColumnLen(3))
				s.ColumnBytes(3, raw)
				all = append(
					all,
					storedTile{
						fmt.Sprintf("/edge/tiles/%s/%d/%d/%d.mvt", id, z, s.ColumnInt64(1), 1<<z-1-s.ColumnInt64(2)),
						"gzip",
						raw,
					},
				)
				return nil
			}},
		),
	)
	return all
}

// tilesOfPMTiles reads a pack without leaf directories according to the specification of the
// format.
func tilesOfPMTiles(t *testing.T, file, id, ext string) (all []storedTile) {
	t.Helper()
	raw, err := os.ReadFile(file)
	must(t, err)
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8+8*i:]) }
	root := io.Reader(bytes.NewReader(raw[at(0) : at(0)+at(1)]))
	if raw[97] == 2 {
		root, err = gzip.NewReader(root)
		must(t, err)
	}
	r := bufio.NewReader(root)
	next := func() uint64 { v, err := binary.ReadUvarint(r); must(t, err); return v }
	n := next()
	ids, runs, sizes, last, end := make([]uint64, n), make([]uint64, n), make([]uint64, n), uint64(0), uint64(0)
	for i := range ids {
		last += next()
		ids[i] = last
	}
	for i := range runs {
		runs[i] = next()
	}
	for i := range sizes {
		sizes[i] = next()
	}
	for i := range ids {
		off := next()
		if off == 0 {
			off = end
		} else {
			off--
		}
		end = off + sizes[i]
		for k := range runs[i] {
			z, x, y := hilbert(ids[i] + k)
			all = append(all,
				storedTile{fmt.Sprintf("/edge/tiles/%s/%d/%d/%d.%s", id, z, x, y, ext), "", raw[at(6)+off : at(6)+end]})
		}
	}
	return all
}

// hilbert returns the tile with an id: the levels in sequence, each along the curve.
func hilbert(id uint64) (z, x, y uint64) {
	for count := uint64(1); id >= count; count *= 4 {
		id -= count
		z++
	}
	for s := uint64(1); s < 1<<z; s *= 2 {
		rx := 1 & (id / 2)
		ry := 1 & (id ^ rx)
		if ry == 0 {
			if rx == 1 {
				x, y = s-1-x, s-1-y
			}
			x, y = y, x
		}
		x, y, id = x+s*rx, y+s*ry, id/4
	}
	return z, x, y
}

// Every tile of every pack is served as in the file, in its coding and decoded.
func TestEveryTileOverHTTP(t *testing.T) {
	t.Parallel()
	r := mapNode(t, nil)
	all := tilesOfMBTiles(t, filepath.Join(packsFolder, "twolayers.mbtiles"), "twolayers")
	all = append(
		all,
		tilesOfPMTiles(t, filepath.Join(packsFolder, "stamen_toner_z3.pmtiles"), "stamen_toner_z3", "png")...)
	all = append(
		all,
		tilesOfPMTiles(t, filepath.Join(packsFolder, "usgs-mt-whitney-8-15-webp-512.pmtiles"),
			"usgs-mt-whitney-8-15-webp-512", "webp")...)
	if want := 554 + 85 + 50; len(all) != want {
		t.Fatalf("%d tiles, want %d", len(all), want)
	}
	for _, tile := range all {
		resp, body := r.get(tile.path, http.Header{"Accept-Encoding": {"gzip"}})
		if resp.StatusCode != 200 || resp.Header.Get("Content-Encoding") != tile.coding ||
			!bytes.Equal(body, tile.raw) ||
			resp.Header.Get("Etag") != `"`+b3.Sum(tile.raw).String()+`"` {
			t.Errorf("%s: %d %q, %d bytes, want %d", tile.path, resp.StatusCode, resp.Header, len(body), len(tile.raw))
		}
		if tile.coding == "" {
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(tile.raw))
		must(t, err)
		plain, err := io.ReadAll(z)
		must(t, err)
		if resp, body := r.get(tile.path,
			nil); resp.Header.Get("Content-Encoding") != "" || !bytes.Equal(body, plain) ||
			resp.Header.Get("Etag") != `"`+b3.Sum(plain).String()+`"` {
			t.Errorf("%s decoded: %q, %d bytes, want %d", tile.path, resp.Header, len(body), len(plain))
		}
	}
	r.halt()
}

// speak sends bytes unchanged, and returns the status of the answer, or 0 without an answer.
func (r *rig) speak(text string) (status int, body string) {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	must(r.t, err)
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, text) // the server may refuse it before it has read all of it
	must(r.t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, ""
	}
	raw, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, string(raw)
}

// honest requests a map repeatedly until stop, and counts the answers.
func (r *rig) honest(ctx context.Context) (asked, served int) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for ctx.Err() == nil {
		for _, path := range []string{
			"/edge/tiles/stamen_toner_z3.json", "/edge/tiles/stamen_toner_z3/1/0/0.png",
			"/edge/assets/stamen_toner_z3.pmtiles",
		} {
			req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
			must(r.t, err)
			asked++
			resp, err := tr.RoundTrip(req)
			if err != nil {
				continue
			}
			if n, err := io.Copy(io.Discard, resp.Body); err == nil && n > 0 && resp.StatusCode == http.StatusOK {
				served++
			}
			_ = resp.Body.Close()
		}
	}
	return asked, served
}

// Malicious paths, hosts, bodies and ranges are refused, half-open requests are closed, and
// concurrent honest clients get every answer.
func TestEdgeBesideHostileClients(t *testing.T) {
	t.Parallel()
	r := mapNode(t, func(c *config.Config) {
		c.Server.ReadTimeout = unit.Duration(2 * time.Second)
		c.Edge.Ingress.BodyBytes = 64 << 10
	})
	ctx, stop := context.WithCancel(t.Context())
	var asked, served [4]int
	var honest sync.WaitGroup
	for i := range asked {
		honest.Go(func() { asked[i], served[i] = r.honest(ctx) })
	}
	half := 2000
	if testing.Short() {
		half = 200
	}
	var open []net.Conn
	for i := range half {
		c, err := net.Dial("tcp", r.Addr())
		must(t, err)
		open = append(open, c)
		// a slow machine may already have closed it
		_, _ = io.WriteString(
			c,
			[]string{
				"GET /edge/assets/stamen_toner_z3.pmtiles HT",
				"GET /edge/tiles/stamen_toner_z3/1/0/0.png HTTP/1.1\r\nHost: x\r\nX: ",
			}[i%2],
		)
	}
	for _, path := range []string{
		"/edge/assets/../admin.token", "/edge/assets/..%2f..%2fnode.key", "/edge/assets/%2e%2e/node.key",
		"/edge/assets/b3/../../node.key", "/edge/assets//etc/passwd",
		`/edge/assets/..\node.key`, "/edge/assets/a%5cb", "/edge/assets/a%00b", "/edge/assets/%ff%fe", "/edge/assets/.",
		"/edge/static/../handlers.go", "/edge/static/%2e%2e/doc.go",
		"/edge/assets/" + strings.Repeat("a/", 1500) + "x", "/edge/assets/" + strings.Repeat("a", 300) + "/x",
		"/edge/tiles/..%2f..%2fronbox.db/0/0/0.png",
		"/edge/tiles/stamen_toner_z3/32/0/0.png", "/edge/tiles/stamen_toner_z3/4294967297/0/0.png",
		"/edge/tiles/stamen_toner_z3/-1/0/0.png", "/edge/tiles/stamen_toner_z3/1/1e0/0.png",
		"/edge/tiles/stamen_toner_z3/01/0/0.png", "/edge/preview/%3Cscript%3E", "/edge/assets/127.0.0.1/x",
		"/edge/assets/[::1]/x", "/edge/assets/localhost:0/x", "/edge/assets/user@cdn.example/x",
	} {
		status, body := r.speak("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if status < 400 || status >= 500 || strings.Contains(body, "<script>") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, host := range []string{
		"evil\"onload=x", "a/b", "<script>", "a b", "x?y", "x#y", "u@h", "%41", "a,b", strings.Repeat("h", 300),
		"ümlaut",
	} {
		status, body := r.speak(
			"GET /edge/tiles/stamen_toner_z3.json HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		if status != http.StatusBadRequest || strings.Contains(body, "<script>") {
			t.Errorf("host %q: %d %s", host, status, body)
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write(make([]byte, 32<<20))
	must(t, err)
	must(t, z.Close())
	post := "POST /edge/fills HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.adminToken() +
		"\r\nContent-Type: application/json\r\n"
	for _, tt := range []struct {
		doc, request string
		status       int
		word         string
	}{
		{"a bomb", post + fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n", bomb.Len()) +
			bomb.String(), 400, "decompress_cap"},
		{"a body beyond edge.ingress.body_bytes", post + "Content-Length: 65537\r\n\r\n", 413, "body_cap"},
		{"a broken chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400, ""},
		{"a chunk cut short", post + "Transfer-Encoding: chunked\r\n\r\nff\r\n{}", 408, "timeout"},
		{"no token", "POST /edge/fills HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
			"Content-Length: 2\r\n\r\n{}", 401, ""},
		{"a host that is not listed", post + "Content-Length: 30\r\n\r\n{\"url\":\"https://cdn.test/x/y\"}",
			403, "not_allowed"},
		{"many ranges beyond the end", "GET /edge/assets/stamen_toner_z3.pmtiles HTTP/1.1\r\nHost: x\r\n" +
			"Connection: close\r\nRange: bytes=" + strings.Repeat("99999999-,", 300) + "99999999-\r\n\r\n",
			416, "invalid_range"},
		{"a body of a GET", "GET /edge/catalog HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" +
			"Connection: close\r\n\r\nhello", 400, ""},
	} {
		before := r.metric("edge_rejects_total", "reason", tt.word)
		if status, body := r.speak(tt.request); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.doc, status, body, tt.status)
		}
		if tt.word != "" && r.metric("edge_rejects_total", "reason", tt.word) != before+1 {
			t.Errorf("%s: not counted as %s", tt.doc, tt.word)
		}
	}
	for _, c := range open { // the node closes them, with or without a 408
		must(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := io.Copy(io.Discard, c); err != nil && !isReset(err) {
			t.Fatalf("a half-open request is still open after a minute: %v", err)
		}
		_ = c.Close()
	}
	stop()
	honest.Wait()
	for i := range asked {
		if asked[i] == 0 || served[i] != asked[i] {
			t.Errorf("an honest client was served %d times of %d", served[i], asked[i])
		}
	}
	r.halt()
}

func isReset(err error) bool { return strings.Contains(err.Error(), "reset") }

// longPack returns a sound pack with so many bytes after its last tile that no socket buffers them.
func longPack(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(packsFolder, "stamen_toner_z3.pmtiles"))
	must(t, err)
	const more = 48 << 20
	// the length of the tile data, which is the last section
	binary.LittleEndian.PutUint64(raw[64:], binary.LittleEndian.Uint64(raw[64:])+more)
	return append(raw, make([]byte, more)...)
}

// A client that does not read a long asset is disconnected after its window, 64 KiB in 15 s, and
// counted. A client that reads slowly gets the whole asset. The windows of the test are shorter.
func TestSlowReadersOfAnAsset(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("its clients keep pace with a window")
	}
	const window = time.Second
	long := longPack(t)
	r := mapNodeWith(t, Options{window: window}, func(c *config.Config) {
		must(t, os.WriteFile(filepath.Join(c.Path(config.PacksName), "long.pmtiles"), long, 0o600))
	})
	for _, route := range edgeapi.New(r.services.Edge(), nil, nil).Routes {
		if route.Endpoint == "/edge/assets" && route.Window != 15*time.Second {
			t.Errorf("%s has a window of %s", route.Pattern, route.Window)
		}
	}
	ask := func() net.Conn {
		c, err := net.Dial("tcp", r.Addr())
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(2*time.Minute)))
		_, err = io.WriteString(c, "GET /edge/assets/long.pmtiles HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		must(t, err)
		return c
	}
	began, stalled, slow := time.Now(), ask(), ask()
	defer func() { _ = stalled.Close() }()
	late := func() float64 { return r.metric("io_timeouts_total", "service", "edge", "op", "write") }
	in := bufio.NewReader(slow)
	resp, err := http.ReadResponse(in, nil)
	must(t, err)
	var got bytes.Buffer
	for late() == 0 { // 2.5 MiB in a second, far above 64 KiB
		n, err := io.CopyN(&got, resp.Body, 256<<10)
		if err != nil || time.Since(began) > time.Minute {
			t.Fatalf("after %s and %d bytes, %d more: %v, %v cut off", time.Since(began), got.Len(), n, err, late())
		}
		time.Sleep(100 * time.Millisecond)
	}
	if took := time.Since(began); took < window {
		t.Errorf("cut off after %s", took)
	}
	_, err = io.Copy(&got, resp.Body)
	if err != nil || !bytes.Equal(got.Bytes(), long) || late() != 1 {
		t.Errorf("who reads got %d bytes of %d: %v; %v cut off", got.Len(), len(long), err, late())
	}
	if n, err := io.Copy(io.Discard, stalled); err == nil && n >= int64(len(long)) {
		t.Errorf("who does not read got all %d bytes", n)
	}
	_ = slow.Close()
	r.halt()
}

// Behind a TLS proxy, below a folder and under another name than edge.public_url, all URLs in the
// page of a pack are below the page's URL. If the proxy is trusted, TileJSON has the scheme and
// host for which the proxy was called.
func TestPreviewBehindProxy(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{true, false} {
		r := mapNode(t, func(c *config.Config) {
			if trusted {
				c.Server.Trusted = []string{"127.0.0.0/8"}
			}
		})
		to := &url.URL{Scheme: "http", Host: r.Addr()}
		proxy := httptest.NewTLSServer(
			http.StripPrefix("/maps", &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(to)
				p.SetXForwarded()
			}}),
		)
		t.Cleanup(proxy.Close)
		fetch := func(at string) string {
			resp, err := proxy.Client().Get(at)
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			must(t, errors.Join(err, resp.Body.Close()))
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", at, resp.Status)
			}
			return string(body)
		}
		page, err := url.Parse(proxy.URL + "/maps/edge/preview/stamen_toner_z3")
		must(t, err)
		refs := regexp.MustCompile(`(?:href|src|data-tilejson|data-style)="([^"]*)"`).
			FindAllStringSubmatch(fetch(page.String()), -1)
		if len(refs) < 8 {
			t.Fatalf("the page has %d references", len(refs))
		}
		for _, ref := range refs {
			if !strings.HasPrefix(ref[1], "data:") {
				at, err := page.Parse(ref[1])
				must(t, err)
				fetch(at.String())
			}
		}
		want := map[bool]string{true: strings.TrimPrefix(proxy.URL, "https:"), false: "//" + r.Addr()}[trusted]
		want = map[bool]string{true: "https:", false: "http:"}[trusted] + want + "/edge/tiles/stamen_toner_z3/{z}"
		if got := fetch(proxy.URL + "/maps/edge/tiles/stamen_toner_z3.json"); !strings.Contains(got, want) {
			t.Errorf("trusted %t: %s, want %s", trusted, got, want)
		}
		r.halt()
	}
}

// TileJSON has the host of the request, or that of the configuration.
func TestTileJSONNamesTheHost(t *testing.T) {
	t.Parallel()
	r := mapNode(t, nil)
	const tiles = "/edge/tiles/stamen_toner_z3/{z}/{x}/{y}.png?v="
	if _, body := r.get("/edge/tiles/stamen_toner_z3.json", nil); !strings.Contains(string(body),
		`"http://`+r.Addr()+tiles) {
		t.Errorf("%s", body)
	}
	for host, want := range map[string]string{
		"maps.example": "http://maps.example" + tiles, "[::1]:80": "http://[::1]:80" + tiles,
	} {
		if _, body := r.speak(
			"GET /edge/tiles/stamen_toner_z3.json HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n",
		); !strings.Contains(body, want) {
			t.Errorf("%s: %s", host, body)
		}
	}
	// A tile requested with its version is cached for ever, another one for an hour.
	info, err := r.services.Edge().Packs().Info("stamen_toner_z3")
	must(t, err)
	for v, want := range map[string]string{
		info.Version: "immutable", "0123456789abcdef": "max-age=3600", "": "max-age=3600",
	} {
		if resp, _ := r.get("/edge/tiles/stamen_toner_z3/0/0/0.png?v="+url.QueryEscape(v), nil); !strings.Contains(
			resp.Header.Get("Cache-Control"), want) {
			t.Errorf("v %q: %q", v, resp.Header)
		}
	}
	r.halt()
}
