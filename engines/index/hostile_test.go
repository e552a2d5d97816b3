package index_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// The valid part of a peer's answer is used: its valid records, and unsigned providers as unsigned.
// Forged, foreign, expired and malformed records are dropped and counted. None of them reaches the
// file.
func TestHostileProviders(t *testing.T) {
	cid := digest("content")
	liar := &fake{providers: func(context.Context, b3.Digest) ([]name.Provider, error) {
		now := time.Now()
		forged := signed(seedKey(2), cid, "", now, time.Hour)
		forged[70] ^= 1
		id := name.PeerIDOf(publicOf(seedKey(6)))
		list := []name.Provider{
			{
				Record: signed(seedKey(3), cid, "eu-west-1", now, time.Hour),
				Peer:   "someone else",
				Addrs:  []string{"/ip4/192.0.2.9/tcp/1"},
			},
			{Record: forged, Verified: true},
			{Record: signed(seedKey(4), digest("other"), "", now, time.Hour)},
			{Record: signed(seedKey(5), cid, "", now.Add(-2*time.Hour), time.Hour)},
			{Record: make([]byte, name.MaxRecord+1)},
			{
				Peer:      id,
				Addrs:     []string{"/ip4/192.0.2.1/tcp/1", "not an address", "/ip6/2001:DB8::1/tcp/1"},
				Verified:  true,
				Region:    "EU",
				ExpiresMS: 1 << 60,
			},
			{Peer: "12D3KooWnot", Addrs: []string{"/ip4/192.0.2.1/tcp/1"}},
			// would displace a signed one
			{Peer: name.PeerIDOf(publicOf(seedKey(3))), Addrs: []string{"/ip4/198.51.100.1/tcp/1"}},
		}
		for range 1000 {
			list = append(list, name.Provider{Peer: name.PeerID(strings.Repeat("1", 1000))})
		}
		return list, nil
	}}
	bubble(t, withPeers(liar), func(r *rig) {
		set, _, err := r.ask(cid, name.ProvidersOptions{})
		if err != nil || len(set.Providers) != 2 {
			t.Fatalf("%+v, %v", set, err)
		}
		a, b := set.Providers[0], set.Providers[1]
		if a.Peer != name.PeerIDOf(publicOf(seedKey(3))) || !a.Verified || a.Region != "eu-west-1" ||
			a.Addrs[0] != "/ip4/192.0.2.1/tcp/8443/https" {
			t.Errorf("signed: %+v", a)
		}
		if b.Verified || b.Region != "" || len(b.Addrs) != 2 || b.Addrs[1] != "/ip6/2001:db8::1/tcp/1" ||
			b.ExpiresMS > time.Now().Add(time.Hour).UnixMilli() {
			t.Errorf("unsigned: %+v", b)
		}
		if r.count("index_integrity_fail_total") < 5 || r.rows() != 0 {
			t.Errorf("%v refused, %d in the file", r.count("index_integrity_fail_total"), r.rows())
		}
	})
}

// The commands agree with a model: rows and rows of expiry correspond, an id keeps the records that
// expire last, and a peer its latest record.
func TestAnnounceAgainstAModel(t *testing.T) {
	cids := []b3.Digest{digest("a"), digest("b")}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // of storetest's stamps
	rapid.Check(t, func(rt *rapid.T) {
		tx := storetest.NewTx(t, tables.Buckets()...)
		model := map[tables.ProviderKey]tables.Announce{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			cid, peer := rapid.SampledFrom(cids).
				Draw(rt, "cid"),
				[32]byte(publicOf(seedKey(byte(rapid.IntRange(1, 4).Draw(rt, "peer")))))
			k := tables.ProviderKey{CID: cid, Peer: peer}
			switch rapid.IntRange(0, 3).Draw(rt, "do") {
			case 0:
				_, err := storetest.Do(tx, tables.Withdraw{CID: cid, Peer: peer})
				if _, known := model[k]; known != (err == nil) {
					rt.Fatalf("withdraw: %v", err)
				}
				delete(model, k)
			case 1:
				gone, err := storetest.Do(tx, tables.Purge{Max: 1})
				if err != nil {
					rt.Fatal(err)
				}
				expired := 0
				for k, c := range model {
					if c.ExpiresMS <= start.UnixMilli() {
						if expired++; !bytes.Equal(tx.Reader().Get(tables.ProviderBucket, append(k.CID[:], k.Peer[:]...)), nil) {
							continue
						}
						delete(model, k)
					}
				}
				if len(gone.CIDs) != min(expired, 1) {
					rt.Fatalf("%d purged of %d", len(gone.CIDs), expired)
				}
			default:
				at := start.UnixMilli() + int64(rapid.IntRange(0, 5).Draw(rt, "at"))
				c := tables.Announce{
					CID:       cid,
					Peer:      peer,
					Raw:       []byte{byte(at)},
					AtMS:      at,
					ExpiresMS: at - 2000*int64(rapid.IntRange(-2, 2).Draw(rt, "life")),
				}
				_, err := storetest.Do(tx, c)
				was, known := model[k]
				if taken := !known || was.AtMS < at || string(was.Raw) == string(c.Raw); taken != (err == nil) {
					rt.Fatalf("announce %+v over %+v: %v", c, was, err)
				} else if taken && (!known || was.AtMS < at) {
					model[k] = c
				}
			}
			rows, ends := 0, 0
			for k, row := range tables.Providers.All(tx.Reader()) {
				if rows++; model[k].AtMS != row.AtMS || !tables.Expiries.Has(tx.Reader(), k.Expiry(&row)) {
					rt.Fatalf("row %+v, model %+v", row, model[k])
				}
			}
			for range tables.Expiries.All(tx.Reader()) {
				ends++
			}
			if rows != len(model) || ends != rows {
				rt.Fatalf("%d rows, %d in the order of expiry, %d in the model", rows, ends, len(model))
			}
		}
	})
}

// An id has at most 256 providers. A new one that expires later replaces the first to expire; one
// that expires before all is refused.
func TestProvidersAreBounded(t *testing.T) {
	tx := storetest.NewTx(t, tables.Buckets()...)
	announce := func(i, expires int) error {
		_, err := storetest.Do(
			tx,
			tables.Announce{CID: digest("c"), Peer: digest("%d", i), Raw: []byte{1}, AtMS: 1, ExpiresMS: int64(expires)},
		)
		return err
	}
	for i := range name.MaxProviders {
		if err := announce(i, 1_000_000+i*1000); err != nil {
			t.Fatal(err)
		}
	}
	if announce(1000, 999_000) == nil {
		t.Error("one that expires first was taken")
	}
	if err := announce(1001, 9_000_000); err != nil {
		t.Error(err)
	}
	rows := 0
	for k := range tables.Providers.All(tx.Reader()) {
		if rows++; k.Peer == digest("%d", 0) {
			t.Error("the first to expire is still there")
		}
	}
	if rows != name.MaxProviders {
		t.Errorf("%d rows", rows)
	}
}

// Each mutation leaves one row in the audit chain, with the caller, the key, and the manifests
// before and after.
func TestAudit(t *testing.T) {
	r := newRig(t, nil).start()
	r.put("name:docs.example", digest("1"))
	r.put("name:docs.example", digest("2"))
	r.put("name:docs.example", digest("2")) // changes nothing
	if err := r.e.DeleteName(r.ctx(), alice, key("name:docs.example"), "corr-del"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.Announce(r.ctx(), alice,
		[]name.Announcement{{CID: digest("c"), Addrs: []string{"/ip4/127.0.0.1/tcp/1"}}}, "corr-ann"); err != nil {
		t.Fatal(err)
	}
	if err := r.e.Withdraw(r.ctx(), alice, digest("c"), "", "corr-wd"); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := r.store.View(r.ctx(), func(rd store.Reader) error {
		rows, err := store.Audit(rd, 1, 100)
		for _, row := range rows {
			if strings.HasPrefix(row.Event.Event, "index.") {
				got = append(
					got,
					row.Event.Event+" "+row.Principal+" "+row.CorrID+" "+row.Detail["before"]+">"+row.Detail["after"],
				)
			}
		}
		return err
	})
	want := []string{
		"index.name_put alice corr-put >" + digest("1").String(),
		"index.name_put alice corr-put " + digest("1").String() + ">" + digest("2").String(),
		"index.name_deleted alice corr-del " + digest("2").String() + ">",
		"index.announced alice corr-ann >", "index.withdrawn alice corr-wd >",
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v\n%s", err, strings.Join(got, "\n"))
	}
}

// Names are listed in order, page by page, without deleted ones.
func TestNamesAreListed(t *testing.T) {
	r := newRig(t, nil).start()
	for _, k := range []string{"name:a.example", "name:b.example", "name:b.example@1.0.0", "name:c.example", "b3:" + digest("x").String()[3:]} {
		r.put(k, digest("m"))
	}
	if err := r.e.DeleteName(r.ctx(), alice, key("name:a.example"), "c"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for after := ""; ; {
		page, err := r.e.Names(r.ctx(), "name:", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range page.Names {
			got = append(got, n.Key.String())
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if strings.Join(got, " ") != "name:b.example name:b.example@1.0.0 name:c.example" {
		t.Errorf("%v", got)
	}
	if every, err := r.e.Names(r.ctx(), "", "", 100); err != nil || len(every.Names) != 4 || every.Next != "" {
		t.Errorf("%v, %v", every, err)
	}
}

// Every bound of the configuration is checked and named.
func TestConfigBounds(t *testing.T) {
	id := string(name.PeerIDOf(publicOf(own)))
	for want, change := range map[string]func(*index.Config){
		"": func(c *index.Config) {
			c.Peers = []string{"https://a:8443#eu-west-1", "http://127.0.0.1:1"}
			c.Trust = []string{"example=" + id, "*=" + strings.Repeat("0a", 32)}
		},
		"peers: \"http://a:1\"":                  func(c *index.Config) { c.Peers = []string{"http://a:1"} },
		"peers: \"a:1\" is there":                func(c *index.Config) { c.Peers = []string{"https://a:1", "https://a:1#x"} },
		"without path":                           func(c *index.Config) { c.Peers = []string{"https://a:1/x"} },
		"peers: must be at most 64":              func(c *index.Config) { c.Peers = make([]string, 65) },
		"region":                                 func(c *index.Config) { c.Peers = []string{"https://a:1#EU"} },
		"peer_tokens: \"b:1\": must be the host": func(c *index.Config) { c.Peers, c.PeerTokens = []string{"https://a:1"}, map[string]string{"b:1": "f"} },
		"peer_tokens: \"a:1\": must be the abs": func(c *index.Config) {
			c.Peers, c.PeerTokens = []string{"https://a:1"}, map[string]string{"a:1": "token"}
		},
		"trust: \"x\"":             func(c *index.Config) { c.Trust = []string{"x"} },
		"trust: \"x=y\"":           func(c *index.Config) { c.Trust = []string{"x=y"} },
		"trust: \"a_b=" + id:       func(c *index.Config) { c.Trust = []string{"a_b=" + id} },
		"cache.warmup_keys":        func(c *index.Config) { c.Cache.WarmupKeys = []string{"a"} },
		"dht.alpha":                func(c *index.Config) { c.DHT.Alpha = 0 },
		"dht.beta":                 func(c *index.Config) { c.DHT.Beta = 17 },
		"dht.hedge_ms":             func(c *index.Config) { c.DHT.HedgeMS = 1200 },
		"dht.deadline_ms":          func(c *index.Config) { c.DHT.DeadlineMS = 5001 },
		"breaker.trip_threshold":   func(c *index.Config) { c.Breaker.TripThreshold = 1 },
		"breaker.half_open_probes": func(c *index.Config) { c.Breaker.HalfOpenProbes = 0 },
		"cache.ttl_ms":             func(c *index.Config) { c.Cache.TTLMS = 99 },
		"limits.inflight":          func(c *index.Config) { c.Limits.Inflight = workCap },
		"drain_deadline":           func(c *index.Config) { c.DrainDeadline = 0 },
		"resolver.workers":         func(c *index.Config) { c.Resolver.Workers = 1025 },
	} {
		c := index.DefaultConfig()
		change(&c)
		err := c.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
