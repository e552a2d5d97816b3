package server

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/registry/record"
)

// holdTail makes TestGuests fail if the 99th percentile of honest requests beside a guest exceeds
// 50 ms and three times that of a quiet node. It needs an idle machine.
var holdTail = flag.Bool("guests.tail", false, "hold the bound of the slowest honest requests")

// guest is a source of data outside the operator's control, with its worst behaviour.
type guest struct {
	name    string
	hurts   string // the service that it may hurt
	prepare func(*testing.T, *config.Config)
	attack  func(context.Context, *rig, *answers) // until the context ends
	meets   []int                                 // statuses that an attack which reaches its aim is answered with
	after   func(*testing.T, *rig)                // checks the remains of the guest; may be nil
}

// answers counts the answers to an attack by their status.
type answers struct {
	mu sync.Mutex
	by map[int]int // guarded by mu
}

func (a *answers) add(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[status]++
}

func (a *answers) has(status int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[status] > 0
}

// guests returns all guests except damaged rows, which TestBadRowHurtsItsServiceAlone covers.
func guests() []guest {
	return []guest{
		{name: "pack", hurts: "edge", prepare: hostilePack, attack: rescans, meets: []int{200}, after: packIsNamed},
		{
			name:    "tile",
			hurts:   "edge",
			prepare: bombTile,
			attack:  readsPaths("/edge/tiles/bomb/0/0/0.png", "/edge/tiles/bomb.json"),
			meets:   []int{200, 406},
		},
		{name: "peer", hurts: "index", prepare: hostilePeers, attack: looksUp, meets: []int{404}},
		{name: "origin", hurts: "edge", prepare: slowOrigin, attack: fetches, meets: []int{429}},
		{name: "witness", hurts: "registry", prepare: badWitness, attack: commits, meets: []int{201},
			after: func(_ *testing.T, r *rig) {
				r.await("the witness is asked", func() bool { return witnessAsked.Load() > 0 })
			}},
		{name: "uploader", hurts: "rewarder", attack: uploads, meets: []int{201, 413}},
		{name: "anonymous reader", hurts: "", attack: readsAll, meets: []int{200}},
	}
}

// TestGuests holds the rule of the package comment: beside each guest the node starts, is ready,
// and answers every honest request to the other services.
func TestGuests(t *testing.T) {
	for _, g := range guests() {
		t.Run(g.name, func(t *testing.T) {
			if !hosttest.UnderRace() {
				t.Parallel() // each waits most of the time
			}
			cfg, made := unpacked(t, "e1db11e")
			if g.prepare != nil {
				g.prepare(t, cfg)
			}
			must(t, config.Validate(cfg))
			var offset atomic.Int64
			offset.Store(int64(time.Until(made)))
			r := launchAt(t, cfg, turned(&offset))
			r.await("packs are served", func() bool { return r.ask(t, honest["edge"]).Status == http.StatusOK })
			quiet := r.honestly(g.hurts)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var attack sync.WaitGroup
			met := &answers{by: map[int]int{}}
			attack.Go(func() { g.attack(ctx, r, met) })
			beside := r.honestly(g.hurts)
			for _, status := range g.meets {
				r.await(fmt.Sprintf("the attack to be answered with %d", status),
					func() bool { return met.has(status) })
			}
			stop()
			attack.Wait()
			if beside.failed > 0 {
				t.Errorf("%d of %d honest requests were not answered", beside.failed, beside.failed+len(beside.took))
			}
			if rep := r.board.Report("", ""); !rep.Ready {
				t.Errorf("the node is not ready: %v", rep.Causes)
			}
			if g.after != nil {
				g.after(t, r)
			}
			t.Logf("p99 of honest requests: %v, quiet %v", beside.quantile(.99), quiet.quantile(.99))
			if most := max(3*quiet.quantile(.99), 50*time.Millisecond); *holdTail && beside.quantile(.99) > most {
				t.Errorf("p99 is %v, more than %v", beside.quantile(.99), most)
			}
			r.halt()
		})
	}
}

// honestly asks every service but one, many times, from addresses of its own.
func (r *rig) honestly(but string) (sum calmness) {
	var all sync.WaitGroup
	var mu sync.Mutex
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
	must(r.t, err)
	for service, path := range honest {
		if service == but {
			continue
		}
		all.Go(func() {
			one := askSlowly(r.Addr(), path, strings.TrimSpace(string(token)))
			mu.Lock()
			defer mu.Unlock()
			sum = sum.and(one)
		})
	}
	all.Wait()
	return sum
}

// askSlowly is one client that asks fifty times, ten in a short run, and waits a while each time.
func askSlowly(addr, path, token string) (q calmness) {
	d := dialFrom(quietHost)
	tr := &http.Transport{DialContext: d.DialContext}
	defer tr.CloseIdleConnections()
	pace := time.NewTicker(quietPause)
	defer pace.Stop()
	times := 50
	if testing.Short() {
		times = 10
	}
	for range times {
		<-pace.C
		begun := time.Now()
		status, _ := fetch(context.Background(), tr, http.MethodGet, "http://"+addr+path, token, "")
		if status != http.StatusOK {
			q.failed++
			continue
		}
		q.took = append(q.took, time.Since(begun))
	}
	slices.Sort(q.took)
	return q
}

// fetch makes one request and reads the answer.
func fetch(ctx context.Context, tr http.RoundTripper, method, url, token, body string) (status int, answer string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	raw, _ := io.ReadAll(resp.Body) // a cut answer has a status too
	_ = resp.Body.Close()
	return resp.StatusCode, string(raw)
}

// flooding runs an attack on many connections from one address, until the context ends. once
// returns the status of one answer.
func flooding(
	ctx context.Context,
	met *answers,
	connections int,
	once func(ctx context.Context, tr *http.Transport, n int64) int,
) {
	var all sync.WaitGroup
	var n atomic.Int64
	for range connections {
		all.Go(func() {
			d := dialFrom(floodHost)
			tr := &http.Transport{DialContext: d.DialContext, DisableCompression: true}
			defer tr.CloseIdleConnections()
			for ctx.Err() == nil {
				met.add(once(ctx, tr, n.Add(1)))
			}
		})
	}
	all.Wait()
}

// readsPaths reads paths as fast as they are answered.
func readsPaths(paths ...string) func(context.Context, *rig, *answers) {
	return func(ctx context.Context, r *rig, met *answers) {
		flooding(ctx, met, 20, func(ctx context.Context, tr *http.Transport, n int64) int {
			status, _ := fetch(ctx, tr, http.MethodGet, "http://"+r.Addr()+paths[n%int64(len(paths))], "", "")
			return status
		})
	}
}

// hostilePeers starts two peers: one hangs, the other answers with noise.
func hostilePeers(t *testing.T, cfg *config.Config) {
	stopped := make(chan struct{})
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-q.Context().Done():
		case <-stopped:
		}
	}))
	noise := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("[{", 1<<19))
	}))
	t.Cleanup(func() { close(stopped); hang.Close(); noise.Close() })
	cfg.Index.Peers = []string{hang.URL, noise.URL}
}

// looksUp requests names and contents that no peer has.
func looksUp(ctx context.Context, r *rig, met *answers) {
	flooding(ctx, met, 100, func(ctx context.Context, tr *http.Transport, n int64) int {
		cid := b3.Sum(fmt.Appendf(nil, "%d", n))
		path := []string{"/providers/" + cid.String(), fmt.Sprintf("/resolve/name:n%d.example", n)}[n%2]
		status, _ := fetch(ctx, tr, http.MethodGet, "http://"+r.Addr()+path, "", "")
		return status
	})
}

// slowOrigin is an allowed host that accepts connections and never sends a byte.
func slowOrigin(t *testing.T, cfg *config.Config) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var accepted sync.WaitGroup
	accepted.Go(func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		for _, c := range open {
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); accepted.Wait() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	cfg.Edge.Mode = "live"
	// the stop waits for the fills that have begun
	cfg.Edge.Ingress.TimeoutSecs, cfg.Edge.Retry.LiveFill.MaxRetries = 2, 1
	cfg.Edge.Allow, cfg.Edge.AllowPrivate = []string{"localhost:" + port}, []string{"127.0.0.0/8", "::1/128"}
}

// fetches requests many paths of the slow origin.
func fetches(ctx context.Context, r *rig, met *answers) {
	flooding(ctx, met, 240, func(ctx context.Context, tr *http.Transport, n int64) int {
		status, _ := fetch(ctx, tr, http.MethodGet,
			fmt.Sprintf("http://%s/edge/assets/%s/f%d", r.Addr(), r.cfg.Edge.Allow[0], n), "", "")
		return status
	})
}

// badWitness answers every checkpoint with a conflict.
func badWitness(t *testing.T, cfg *config.Config) {
	witnessAsked.Store(0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		witnessAsked.Add(1)
		w.Header().Set("Content-Type", "text/x.tlog.size")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "1000\n")
	}))
	t.Cleanup(server.Close)
	key := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	hash := sha256.Sum256(append([]byte("w.example\n\x04"), key...))
	encoded := base64.StdEncoding.EncodeToString(append([]byte{4}, key...))
	policy := fmt.Sprintf("witness w w.example+%x+%s %s/\nquorum w\n", hash[:4], encoded, server.URL)
	cfg.Registry.Witness.Enabled = true
	cfg.Registry.Checkpoint.EveryVersions = 1 // each checkpoint is shown to it
	witnessAt.Store(&policy)
}

// witnessAt is the policy that names the bad witness, and witnessAsked counts the checkpoints that
// it was shown.
var (
	witnessAt    atomic.Pointer[string]
	witnessAsked atomic.Int64
)

// commits installs the policy that names the witness, then commits version after version.
func commits(ctx context.Context, r *rig, met *answers) {
	c, key, head := r.socket(), signer(r.t, r.cfg), r.services.Registry().Head()
	set := *head.Signers
	set.Epoch++
	set.WitnessPolicy = *witnessAt.Load()
	next := record.Draft{Version: head.Head.Version + 1, SignerSet: &set}.Bytes()
	for ctx.Err() == nil {
		if _, err := putDraftAt(ctx, c, key, next, r.now()); err != nil {
			r.t.Logf("commits end: %v", err) // refused from now on
			break
		}
		met.add(http.StatusCreated)
		next = draft(r.services.Registry().Head().Head.Version+1, "witnessed")
	}
}

// uploads declares uploads of usage, each for a different epoch, and sends bodies that are too
// large.
func uploads(ctx context.Context, r *rig, met *answers) {
	token := r.adminToken()
	large := strings.Repeat("x", 4<<20)
	flooding(ctx, met, 20, func(ctx context.Context, tr *http.Transport, n int64) int {
		body := fmt.Sprintf(
			`{"epoch_id":"u%d","asset":"ron","pool_minor":"1","metrics":["requests"],"account":"pool:protocol"}`,
			n,
		)
		if n%8 == 0 {
			body = large
		}
		status, _ := fetch(ctx, tr, http.MethodPost, "http://"+r.Addr()+"/rewarder/inputs", token, body)
		return status
	})
}

// readsAll reads every route from one address, without a token.
func readsAll(ctx context.Context, r *rig, met *answers) {
	readsPaths("/v1/ledger/export", "/registry/audit", "/index/names?prefix=", "/edge/catalog",
		"/rewarder/epochs", "/metrics", "/openapi.json", "/resolve/name:a.example?fresh=1",
		"/providers/b3:"+strings.Repeat("ab", 32)+"?fresh=1", "/registry/head")(
		ctx,
		r,
		met,
	)
}
