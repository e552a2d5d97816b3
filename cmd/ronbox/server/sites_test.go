package server

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	edgeapi "ronbox/httpapi/wire/edge"
	indexapi "ronbox/httpapi/wire/index"
	nodeapi "ronbox/httpapi/wire/node"
)

// temps returns the number of objects that are being written.
func (r *rig) temps() int {
	left, err := os.ReadDir(filepath.Join(r.cfg.Node.DataDir, "edge", "cas", "tmp"))
	must(r.t, err)
	return len(left)
}

// putToken returns a client over TCP that may put objects and nothing else.
func (r *rig) putToken() (edgeapi.Client, string) {
	r.t.Helper()
	token, err := r.socket().Mint(r.t.Context(), nodeapi.MintRequest{Sub: "publisher", Scopes: []string{"edge.put"}})
	must(r.t, err)
	return r.holder(token.Token).edgeAPI, token.Token
}

// A put whose body is cut off or stalls is refused and leaves nothing: neither a file, nor room that
// stays taken.
func TestPutIsCutOff(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.ReadTimeout = unit.Duration(300 * time.Millisecond)
	r := start(t, cfg)
	_, token := r.putToken()
	head := "PUT /edge/objects HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token +
		"\r\nContent-Type: application/octet-stream\r\n"
	other := strings.Replace(head, "objects", "objects?b3="+b3.Sum(nil).String(), 1)
	for doc, try := range map[string]struct {
		text  string
		close bool
		want  int // status; 0: the connection is closed by the client
	}{
		"cut":          {head + "Content-Length: 9000000\r\n\r\n" + strings.Repeat("x", 1<<20), true, 0},
		"stalled":      {head + "Content-Length: 9000000\r\n\r\n" + strings.Repeat("x", 1<<10), false, 408},
		"cut chunk":    {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel", true, 0},
		"bad chunk":    {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, 400},
		"too long":     {head + "Content-Length: 999999999999\r\n\r\n", false, 413},
		"beyond all":   {head + "Content-Length: 1125899906842625\r\n\r\n", false, 413},
		"encoded":      {head + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", false, 415},
		"no token":     {strings.Replace(head, token, "none", 1) + "Content-Length: 1\r\n\r\nx", false, 401},
		"other digest": {other + "Content-Length: 1\r\n\r\nx", false, 422},
	} {
		c, err := net.Dial("tcp", r.Addr())
		must(t, err)
		_, err = io.WriteString(c, try.text)
		must(t, err)
		if try.close {
			must(t, c.Close())
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != try.want {
			t.Errorf("%s: %+v, %v", doc, resp, err)
		}
		_ = c.Close()
	}
	r.await("no object is being written", func() bool { return r.temps() == 0 })
	page, _, err := r.services.Edge().Keys(t.Context(), content.KeyQuery{Limit: 10})
	if err != nil || len(page) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

// Puts of one object at once, over one connection each, store it once. A token for puts does nothing
// else.
func TestPutsAtOnce(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, _ := r.putToken()
	body := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 8 {
		wg.Go(func() {
			o, err := c.PutObject(t.Context(), edgeapi.ObjectPut{Body: bytes.NewReader(body), Size: int64(len(body))})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || o.B3 != b3.Sum(body).String() {
				t.Errorf("%+v, %v", o, err)
			}
			if o.New {
				fresh++
			}
		})
	}
	wg.Wait()
	if fresh != 1 || r.temps() != 0 {
		t.Errorf("%d are new, %d files are left", fresh, r.temps())
	}
	resp, got := r.get("/edge/assets/b3/"+b3.Sum(body).String()[len("b3:"):], nil)
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, body) {
		t.Errorf("%s, %d bytes", resp.Status, len(got))
	}
	if _, err := c.EdgeKeep(t.Context(), asset.Remove, []string{b3.Sum(body).String()}); err == nil {
		t.Error("a token for puts removes objects")
	}
}

// An edge without an index stores objects and has no sites. In amnesia nothing is stored.
func TestSitesWithoutIndex(t *testing.T) {
	for doc, change := range map[string]func(*config.Config){
		"no index": func(c *config.Config) { c.Index.Enabled = false },
		"amnesia":  func(c *config.Config) { c.Amnesia.Enabled = true },
	} {
		cfg, _ := devConfig(t)
		change(cfg)
		r := start(t, cfg)
		_, err := r.socket().PutObject(t.Context(), edgeapi.ObjectPut{Body: strings.NewReader("x"), Size: 1})
		if amnesia := doc == "amnesia"; (err != nil) != amnesia || amnesia && !strings.Contains(err.Error(), "amnesia") {
			t.Errorf("%s: %v", doc, err)
		}
		if resp, body := r.get("/edge/sites/docs.example/", nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %s", doc, resp.Status, body)
		}
		r.stop()
	}
}

// In a fleet an object that is put is announced under the endpoint of the node's item, and withdrawn
// when it is removed. Without an item the put succeeds, and the announcement waits for the item.
func TestPutIsAnnounced(t *testing.T) {
	t.Parallel()
	r := fleetNode(t, "a")
	ctx := t.Context()
	put := func(body string) string {
		o := told[edgeapi.Object](t)(r.socket().PutObject(ctx,
			edgeapi.ObjectPut{Body: strings.NewReader(body), Size: int64(len(body)), Announce: true}))
		return o.B3
	}
	providers := func(object string) []indexapi.Provider {
		p, err := r.index().Providers(ctx, indexapi.ProvidersQuery{CID: object})
		if err != nil {
			return nil
		}
		return p.Providers
	}
	early := put("early")
	if p := providers(early); p != nil {
		t.Errorf("announced without an item: %+v", p)
	}
	r.list(2, r.fleetItem(r, "a.example"))
	now := put("now")
	host, port, err := net.SplitHostPort(r.Addr())
	must(t, err)
	addr := "/ip4/" + host + "/tcp/" + port + "/http"
	p := providers(now)
	if len(p) != 1 || !p[0].Valid || len(p[0].Addrs) != 1 || p[0].Addrs[0] != addr ||
		time.Until(p[0].Expires()) < 23*time.Hour {
		t.Errorf("%+v, want %s", p, addr)
	}
	told[edgeapi.Kept](t)(r.socket().EdgeKeep(ctx, asset.Remove, []string{now}))
	if p := providers(now); p != nil {
		t.Errorf("removed: %+v", p)
	}
	r.halt()
}
