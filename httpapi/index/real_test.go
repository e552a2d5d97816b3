package index

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/wire/index"
	"ronbox/store"
)

// keyOf returns an Ed25519 key derived from n.
func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

// realRig returns a server over a real engine with a store in memory.
func realRig(t testing.TB, change func(*index.Config), entries ...string) *rig {
	t.Helper()
	cfg := index.DefaultConfig()
	cfg.DHT.DeadlineMS = 5000 // for a machine that is busy
	if change != nil {
		change(&cfg)
	}
	m := obs.NewMetrics()
	cat := flow.NewCatalog(m, nil)
	var peers []name.Peer
	for _, entry := range entries {
		p, err := NewPeer(cat, m, entry)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		peers = append(peers, p)
	}
	s := store.New(store.DefaultConfig(), store.Options{
		Catalog:   cat,
		Metrics:   m,
		Memory:    &store.AmnesiaConfig{Enabled: true, PurgeIntervalMS: 30_000, MaxBytes: 64 << 20, AllowSwap: true},
		Producers: map[store.Lane][]string{store.Work: {flow.HTTP}, store.Bulk: {"index.cache_janitor"}},
	})
	e := index.New(
		cfg,
		index.Deps{
			Catalog:  cat,
			Store:    s,
			Metrics:  m,
			Peers:    peers,
			Identity: func() ed25519.PrivateKey { return keyOf(1) },
		},
	)
	ctx := context.Background()
	sup := flow.NewSupervisor(ctx, cat, flow.Hooks{})
	if err := errors.Join(s.Open(ctx), s.Prepare(ctx)); err != nil {
		t.Fatal(err)
	}
	sup.Start(s.Tasks()...)
	if err := e.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	sup.Start(e.Tasks()...)
	t.Cleanup(func() {
		cat.CloseFedBy(service, flow.HTTP)
		sup.CancelBackground()
		sup.Drain(service, 10*time.Second, time.Second)
		s.CloseLanes()
		sup.Drain("store", 10*time.Second, time.Second)
		sup.Close()
		e.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, metrics: m}
	r.serve(cfg, cat, e)
	return r
}

// announce sends signed records and returns the results.
func (r *rig) announce(records ...[]byte) []indexapi.AnnounceResult {
	r.t.Helper()
	var in indexapi.Announce
	for _, one := range records {
		in.Providers = append(in.Providers, indexapi.Announcement{Record: one})
	}
	body, err := json.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return read[indexapi.AnnounceResults](r, r.do(http.MethodPost, "/index/providers", string(body), nil), http.StatusOK).Results
}

// signed returns a signed provider record.
func signed(t testing.TB, key ed25519.PrivateKey, change func(*name.ProviderRecord)) []byte {
	t.Helper()
	p := name.ProviderRecord{
		CID:    someCID,
		Addrs:  []string{someAddr},
		Region: "eu-west-1",
		AtMS:   time.Now().UnixMilli(),
		TTLSec: 3600,
	}
	if change != nil {
		change(&p)
	}
	raw, err := p.Sign(key, time.UnixMilli(p.AtMS)) // signed while it was valid
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Records that a third party sends are accepted only if their provider has signed them and they are
// valid now.
func TestHostileRecords(t *testing.T) {
	r := realRig(t, nil)
	good := signed(t, keyOf(2), nil)
	forged := slices.Clone(good)
	forged[len(forged)-1] ^= 1
	foreign := append(slices.Clone(signed(t, keyOf(3), nil)[:ed25519.SignatureSize]), good[ed25519.SignatureSize:]...)
	record := name.NameRecord{
		Key:       someKey(t),
		Manifest:  someCID,
		Seq:       1,
		UpdatedMS: time.Now().UnixMilli(),
		ExpiresMS: time.Now().Add(time.Hour).UnixMilli(),
	}
	another, err := record.Sign(keyOf(2))
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range r.announce(good, forged, foreign,
		signed(t, keyOf(2), func(p *name.ProviderRecord) { p.AtMS -= 2 * 3600 * 1000 }),
		signed(t, keyOf(2), func(p *name.ProviderRecord) { p.AtMS += 3600 * 1000 }),
		append(slices.Clone(good), make([]byte, 3<<10)...), another, []byte{0}) {
		if got.Accepted != (i == 0) || !got.Accepted && got.Reason == "" {
			t.Errorf("record %d: %+v", i, got)
		}
	}
	got := read[indexapi.Providers](r, r.do(http.MethodGet, "/providers/"+someCID.String(), "", nil), http.StatusOK)
	want := string(name.PeerIDOf(keyOf(2).Public().(ed25519.PublicKey)))
	if len(got.Providers) != 1 || got.Providers[0].Peer != want || !got.Providers[0].Valid || got.Source != "local" {
		t.Errorf("providers: %+v", got)
	}
}

// A peer's answer about other providers counts only if they have signed it, and its names only if
// its key is trusted.
func TestPeersThatLie(t *testing.T) {
	mine := signed(t, keyOf(2), nil)
	lie := slices.Clone(signed(t, keyOf(3), nil))
	lie[len(lie)-1] ^= 1
	stranger := name.NameRecord{
		Key:       someKey(t),
		Manifest:  someCID,
		Seq:       9,
		UpdatedMS: time.Now().UnixMilli(),
		ExpiresMS: time.Now().Add(time.Hour).UnixMilli(),
	}
	record, err := stranger.Sign(keyOf(4))
	if err != nil {
		t.Fatal(err)
	}
	id := func(n byte) string { return string(name.PeerIDOf(keyOf(n).Public().(ed25519.PublicKey))) }
	one := func(n byte, raw []byte) string {
		return fmt.Sprintf(
			`{"Schema":"peer","ID":%q,"Addrs":["/ip4/6.6.6.6/tcp/6"],"ron":%q}`,
			id(n),
			base64.StdEncoding.EncodeToString(raw),
		)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, "/resolve/") {
			answer(http.StatusOK, fmt.Sprintf(`{"record":%q}`, base64.StdEncoding.EncodeToString(record)))(w, q)
			return
		}
		answer(
			http.StatusOK,
			`{"Providers":[`+one(
				5,
				mine,
			)+`,`+one(
				3,
				lie,
			)+`,{"Schema":"peer","ID":"`+id(
				6,
			)+`","Addrs":["`+someAddr+`","nonsense"]}]}`,
		)(w, q)
	}))
	defer s.Close()
	r := realRig(t, func(c *index.Config) { c.Trust = []string{"example=" + id(7)} }, s.URL)
	got := read[indexapi.Providers](r, r.do(http.MethodGet, "/providers/"+someCID.String(), "", nil), http.StatusOK)
	for _, p := range got.Providers {
		if p.Valid != (p.Peer == id(2)) || p.Valid && p.Addrs[0] != someAddr || p.Peer == id(3) || p.Peer == id(5) {
			t.Errorf("taken from a liar: %+v", p)
		}
	}
	if len(got.Providers) == 0 || got.Providers[0].Peer != id(2) {
		t.Errorf("providers: %+v", got)
	}
	if w := r.do(http.MethodGet, "/resolve/name:docs.example", "", nil); w.Code == http.StatusOK {
		t.Errorf("a name by a key that nobody trusts: %s", w.Body)
	}
}

// Answers of a peer that has died are served as stale. If stale is off, the lookup fails.
func TestStaleOverHTTP(t *testing.T) {
	for _, stale := range []bool{true, false} {
		var dead atomic.Bool
		raw := signed(t, keyOf(2), nil)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if dead.Load() {
				panic(http.ErrAbortHandler)
			}
			answer(
				http.StatusOK,
				fmt.Sprintf(
					`{"Providers":[{"Schema":"peer","ID":%q,"Addrs":[],"ron":%q}]}`,
					somePeer,
					base64.StdEncoding.EncodeToString(raw),
				),
			)(w, q)
		}))
		r := realRig(t, func(c *index.Config) { c.Stale = stale }, s.URL)
		at := "/providers/" + someCID.String()
		if got := read[indexapi.Providers](r, r.do(http.MethodGet, at, "", nil), http.StatusOK); got.Source != "peer" {
			t.Errorf("warm-up: %+v", got)
		}
		for end := time.Now().Add(time.Minute); read[indexapi.Providers](r, r.do(http.MethodGet, at, "", nil), http.StatusOK).Source != "cache"; {
			if time.Now().After(end) {
				t.Fatal("not cached within a minute")
			}
		}
		dead.Store(true)
		w := r.do(http.MethodGet, at+"?fresh=1", "", nil)
		switch {
		case stale && read[indexapi.Providers](r, w, http.StatusOK).Source != "stale":
			t.Errorf("not marked: %s", w.Body)
		case !stale && w.Code < http.StatusInternalServerError:
			t.Errorf("stale is off: %d %s", w.Code, w.Body)
		}
		s.Close()
	}
}

// One client with 300 connections gets the share of one network, and other clients are answered as
// usual.
func TestOneGreedyClient(t *testing.T) {
	const greedy, honest, each = 300, 10, 20
	r := realRig(t, nil)
	if w := r.do(
		http.MethodPut,
		"/index/names/name:docs.example",
		`{"manifest":"`+someB3+`"}`,
		nil,
	); w.Code != http.StatusCreated {
		t.Fatal(w.Code)
	}
	ask := func(c net.Conn, in *bufio.Reader) int {
		if _, err := io.WriteString(c, "GET /resolve/name:docs.example HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return 0
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0
		}
		defer func() { _ = resp.Body.Close() }()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return 0
		}
		return resp.StatusCode
	}
	from := func(n byte) (net.Conn, *bufio.Reader) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, n)}}
		c, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Error(err)
			return nil, nil
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c, bufio.NewReader(c)
	}
	var served, refused atomic.Int64
	over := make(chan struct{})
	var flood, others, begun sync.WaitGroup
	begun.Add(greedy)
	for range greedy {
		flood.Go(func() {
			c, in := from(99)
			status := 0
			if c != nil {
				defer func() { _ = c.Close() }()
				status = ask(c, in)
			}
			if status == http.StatusOK {
				served.Add(1)
			} else {
				refused.Add(1)
			}
			begun.Done()
			for status == http.StatusOK {
				select {
				case <-over:
					return
				default:
					status = ask(c, in)
				}
			}
		})
	}
	begun.Wait()
	var good atomic.Int64
	for i := range honest {
		others.Go(func() {
			c, in := from(byte(10 + i))
			if c == nil {
				return
			}
			defer func() { _ = c.Close() }()
			for range each {
				if ask(c, in) == http.StatusOK {
					good.Add(1)
				}
			}
		})
	}
	others.Wait()
	close(over)
	flood.Wait()
	if served.Load() > 256 || refused.Load() < greedy-256 {
		t.Errorf("of %d connections of one client %d were served, %d refused", greedy, served.Load(), refused.Load())
	}
	if good.Load() < honest*each*995/1000 {
		t.Errorf("of %d requests of others %d were answered", honest*each, good.Load())
	}
}

// FuzzNDJSON checks that every set of providers is served as one record per line, and that a peer
// decodes the same records.
func FuzzNDJSON(f *testing.F) {
	f.Add("/ip4/192.0.2.1/tcp/443", []byte("signed"), 3)
	f.Add("\n{}\n\xff", []byte{}, 1)
	f.Add("\"},{\"\u2028", []byte{0}, 200)
	r := newRig(f)
	f.Fuzz(func(t *testing.T, addr string, record []byte, n int) {
		r.t = t
		n = max(0, n%maxRouting)
		r.engine.set.Providers = slices.Repeat(
			[]name.Provider{{Peer: somePeer, Addrs: []string{strings.ToValidUTF8(addr, "?")}, Record: record}},
			n,
		)
		w := r.do(http.MethodGet, "/routing/v1/providers/"+someB3, "", http.Header{"Accept": {httpapi.TypeLines}})
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		lines := 0
		for line := range bytes.Lines(w.Body.Bytes()) {
			var one indexapi.PeerRecord
			if err := json.Unmarshal(line, &one); err != nil || one.ID != somePeer || !bytes.Equal(one.Ron, record) {
				t.Fatalf("line %d: %v: %q", lines, err, line)
			}
			lines++
		}
		if lines != n {
			t.Errorf("%d lines of %d records", lines, n)
		}
	})
}
