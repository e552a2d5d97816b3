package server

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi"
	clusterapi "ronbox/httpapi/wire/cluster"
	edgeapi "ronbox/httpapi/wire/edge"
)

const (
	copiedTile    = "/edge/tiles/stamen_toner_z3/1/0/0.png"
	copiedSite    = "/edge/sites/docs.example/0.txt"
	copiedPayload = "/registry/1/payload"
)

// served returns the number of requests that a node has answered for its own clients and others.
func (r *rig) served() float64 {
	return r.metric("http_requests_total", "service", "edge") + r.metric("http_requests_total", "service", "registry")
}

// copiesFrom reports whether b answers a path with 200 and does not ask a, which leads.
func (b *lives) copiesFrom(a *lives, path string) bool {
	before := a.served()
	resp, _ := b.get(path, nil)
	return resp.StatusCode == http.StatusOK && a.served() == before && resp.Header.Get(httpapi.AgeHeader) == ""
}

// putOne stores an object and returns its path. It waits until another member has the bytes.
func (a *lives) putOne(text string) string {
	a.t.Helper()
	o, err := a.edgeClient().PutObject(a.t.Context(), edgeapi.ObjectPut{
		Body: strings.NewReader(text), Size: int64(len(text)),
	})
	must(a.t, err)
	if o.Copies != 2 {
		a.t.Fatalf("%q is on %d members", text, o.Copies)
	}
	d := b3.Sum([]byte(text))
	return "/edge/assets/b3/" + hex.EncodeToString(d[:])
}

// A member that does not lead answers content that cannot change itself. Once no member leads, it also
// answers what it had last, with its age, unless cluster.outage_reads forbids it.
func TestReadsWithoutALeader(t *testing.T) {
	t.Parallel()
	packs := func(cfg *config.Config) { must(t, initdir.CopyPacks(cfg, packsFolder)) }
	a := leadsAlone(t, packs)
	_, err := a.socket().CheckpointNow(t.Context())
	must(t, err)
	token, err := a.cluster().MintClusterToken(t.Context(), clusterapi.JoinTokenRequest{Standby: true})
	must(t, err)
	cfg := joinedBy(t, token)
	packs(cfg)
	b := live(t, cfg)
	b.await("the admission", func() bool { return !exists(cfg.Path("cluster", "join.json")) })
	a.await("an answer of the other member", func() bool {
		s, err := a.status()
		return err == nil && len(s.Members) == 2 && s.Members[1].Healthy
	})

	object := a.putOne("hello")
	a.putSite("docs.example", "welcome")
	exact := []string{
		object, copiedTile, "/edge/tiles/stamen_toner_z3.json", "/edge/static/preview.js", copiedPayload, "/registry/1/entry",
		"/registry/tile/0/000.p/1", a.putOne("later"),
	}
	for _, path := range exact {
		b.await(path, func() bool { return b.copiesFrom(a, path) })
	}
	old := []string{"/edge/catalog", copiedSite}
	for _, path := range old {
		before := a.served()
		if resp, body := b.get(path, nil); resp.StatusCode != 200 || resp.Header.Get(httpapi.AgeHeader) != "" ||
			a.served() == before {
			t.Errorf("%s: %s, age %q: %s", path, resp.Status, resp.Header.Get(httpapi.AgeHeader), body)
		}
	}
	absent := "/edge/assets/b3/" + strings.Repeat("0", 64)
	if resp, _ := b.get(absent, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an object that no member has: %s", resp.Status)
	}

	halts := time.Now()
	a.halt()
	gone := time.Now()
	b.await("the loss of the leader", func() bool {
		resp, _ := b.get("/edge/catalog", nil)
		return resp.Header.Get(httpapi.AgeHeader) != ""
	})
	for _, path := range old {
		resp, body := b.get(path, nil)
		age, err := strconv.ParseFloat(resp.Header.Get(httpapi.AgeHeader), 64)
		most := time.Since(halts).Seconds() + cfg.Cluster.Heartbeat.D().Seconds() // of the last word
		if resp.StatusCode != 200 || err != nil || age < cfg.Cluster.Heartbeat.D().Seconds() || age > most+1 {
			t.Errorf("%s: %s, age %v of %v: %s", path, resp.Status, age, most, body)
		}
	}
	if _, body := b.get(copiedSite, nil); string(body) != "welcome" {
		t.Errorf("the site is %q", body)
	}
	want := map[string]int{"/registry/head": 503, "/registry/1/status": 503, "/readyz": 503, "/healthz": 200, absent: 503}
	for _, path := range exact {
		want[path] = http.StatusOK
	}
	for path, status := range want {
		if resp, body := b.get(path, nil); resp.StatusCode != status || resp.Header.Get(httpapi.AgeHeader) != "" {
			t.Errorf("%s without a leader: %s %s", path, resp.Status, body)
		}
	}

	now, _ := b.config.Load()
	strict := *now.cfg
	strict.Cluster.OutageReads = false
	b.config.Store(current{version: now.version, cfg: &strict})
	for path, status := range map[string]int{old[0]: 503, old[1]: 503, object: 200, copiedPayload: 200} {
		if resp, body := b.get(path, nil); resp.StatusCode != status {
			t.Errorf("%s with outage_reads = false: %s %s", path, resp.Status, body)
		}
	}

	b.halt()
	b = live(t, cfg) // has heard nobody: it goes by the last command
	b.until("standby", func(p flow.Phase) bool { return p == flow.Standby })
	b.await("the end of its first heartbeat", func() bool {
		since := time.Since(gone)
		resp, _ := b.get("/edge/catalog", nil)
		age, err := strconv.ParseFloat(resp.Header.Get(httpapi.AgeHeader), 64)
		if err == nil && age < since.Seconds()-1 {
			t.Errorf("the age is %v s, the leader has gone %v ago", age, since)
		}
		return err == nil
	})
	if resp, _ := b.get(object, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s after a boot: %s", object, resp.Status)
	}
	b.halt()
}

// Reads of the copies go on while the node is elected and its engines recover.
func TestCopiesUntilElected(t *testing.T) {
	t.Parallel()
	cfg := clusteredConfig(t)
	must(t, initdir.CopyPacks(cfg, packsFolder))
	m := newFakeMember()
	r := standby(t, cfg, (&renewal{}).options(m))
	r.await("the copies", func() bool {
		return r.copies.Has("edge") && r.copies.Has("registry") && !r.copies.Has("wallet")
	})
	before := r.store.Info().Seq
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				at := pack.TileRef{Pack: "stamen_toner_z3", Z: 1}
				all := func(pack.Coding) bool { return true }
				if _, err := r.services.Edge().Packs().Tile(t.Context(), at, all); err != nil {
					t.Errorf("a tile: %v", err)
					return
				}
				if _, err := r.services.Registry().PayloadBytes(t.Context(), 1); err != nil {
					t.Errorf("a payload: %v", err)
					return
				}
				_, _ = r.services.Edge().Asset(t.Context(), "b3/"+strings.Repeat("0", 64), "")
			}
		})
	}
	if seq := r.store.Info().Seq; seq != before {
		t.Errorf("a standby has committed: seq %d, was %d", seq, before)
	}
	must(t, m.elect())
	r.begin()
	stop()
	readers.Wait()
	r.await("a verified pack", func() bool {
		info, err := r.services.Edge().Packs().Info("stamen_toner_z3")
		return err == nil && info.State == asset.PackVerified
	})
	r.halt()
}
