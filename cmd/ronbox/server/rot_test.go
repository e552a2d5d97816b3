package server

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/clock"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// few is the number of rows of a bucket that `make test` changes. Only one of them costs the start
// of a node.
const few = 3

var rotten = flag.Int("rotten", few, "rows of a bucket whose names TestNamesRot changes or loses")

// rowName is the name of a row, a sub-bucket or a bucket.
type rowName struct {
	in  []string // the buckets around it
	key []byte
	at  int64 // offset of the key in the file
}

func (n rowName) String() string { return fmt.Sprintf("%s %q", strings.Join(n.in, "/"), n.key) }

// cached reports whether the row is one that the edge drops when it is damaged: the object is fetched
// again.
func (n rowName) cached() bool { return len(n.in) > 0 && strings.HasPrefix(n.in[0], "edge/") }

// ofGuest reports whether the row is of a service that cannot stop the node. The name of a bucket is
// the store's.
func (n rowName) ofGuest() bool {
	return len(n.in) > 0 && slices.ContainsFunc(wiring.All(), func(s wiring.Service) bool {
		return s.Guest && slices.ContainsFunc(s.Buckets, func(b *store.Bucket) bool { return b.Name == n.in[0] })
	})
}

// TestNamesRot flips a bit in the names of rows of every bucket, or loses rows. Either the node does
// not serve, or a service with the row is shut out, or the answers are those of before. A check of
// the file finds the damage before the node runs and afterwards.
func TestNamesRot(t *testing.T) {
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("the checks are the work of one goroutine")
	}
	cfg, made := unpacked(t, "de1fc8f")
	truth := enrich(t, cfg, made)
	_, err := store.Compact(t.Context(), cfg.Path(config.DatabaseName), nil)
	must(t, err)
	whole, err := os.ReadFile(cfg.Path(config.DatabaseName))
	must(t, err)
	if rep := checkedNames(t, cfg); !rep.OK {
		t.Fatalf("the file is not sound: %+v", rep.Steps)
	}
	truth.holds(t, cfg, made, rowName{})
	must(t, os.WriteFile(cfg.Path(config.DatabaseName), whole, 0o600))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	byBucket := map[string][]rowName{}
	for _, n := range namesIn(t, cfg.Path(config.DatabaseName), whole) {
		in := strings.Join(n.in[:min(1, len(n.in))], "")
		byBucket[in] = append(byBucket[in], n)
	}
	for in, names := range byBucket {
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for i, n := range names[:min(*rotten, len(names))] {
			bit, lost := rng.IntN(8*len(n.key)), rng.IntN(2) == 0
			if in == "ledger/state" && slices.ContainsFunc(byBucket["ledger/recent"], func(newer rowName) bool {
				return bytes.Equal(newer.key, n.key)
			}) {
				lost = false // the row that replaces it is there, so its loss changes nothing
			}
			runs := i == 0 || *rotten > few
			t.Run(fmt.Sprintf("%s/%x/%d/%v", in, n.key, bit, lost), func(t *testing.T) {
				t.Parallel()
				own, _ := unpacked(t, "de1fc8f")
				raw := bytes.Clone(whole)
				if !lost && n.at >= 0 {
					raw[n.at+int64(bit/8)] ^= 1 << (bit % 8)
				}
				must(t, os.WriteFile(own.Path(config.DatabaseName), raw, 0o600))
				switch {
				case lost:
					change(t, own, n.lose)
				case n.at < 0:
					change(t, own, func(tx *bolt.Tx) error { return n.rename(tx, bit) })
				}
				if rep := checkedNames(t, own); rep.OK {
					t.Errorf("%v at %d, bit %d, lost %v: the file is said to be sound", n, n.at, bit, lost)
				}
				if runs {
					truth.holds(t, own, made, n)
				}
			})
		}
	}
}

// namesIn lists all names in a file without free pages.
func namesIn(t *testing.T, file string, raw []byte) (all []rowName) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{PageSize: store.PageSize, ReadOnly: true})
	must(t, err)
	base := db.Info().Data
	var walk func(c *bolt.Cursor, in []string, sub func([]byte) *bolt.Bucket)
	walk = func(c *bolt.Cursor, in []string, sub func([]byte) *bolt.Bucket) {
		for k, v := c.First(); k != nil; k, v = c.Next() {
			at := int64(uintptr(unsafe.Pointer(&k[0])) - base)
			if at < 0 || at >= int64(len(raw)) { // bbolt has copied a small bucket
				at = -1
			}
			all = append(all, rowName{in, bytes.Clone(k), at})
			if v == nil {
				b := sub(k)
				walk(b.Cursor(), append(slices.Clone(in), string(k)), b.Bucket)
			}
		}
	}
	must(t, db.View(func(tx *bolt.Tx) error {
		walk(tx.Cursor(), nil, tx.Bucket)
		return nil
	}))
	must(t, db.Close())
	return all
}

// lose deletes the row or bucket.
func (n rowName) lose(tx *bolt.Tx) error {
	if len(n.in) == 0 {
		return tx.DeleteBucket(n.key)
	}
	b := n.around(tx)
	if b.Get(n.key) == nil {
		return b.DeleteBucket(n.key)
	}
	return b.Delete(n.key)
}

// around returns the bucket that has the name.
func (n rowName) around(tx *bolt.Tx) *bolt.Bucket {
	b := tx.Bucket([]byte(n.in[0]))
	for _, sub := range n.in[1:] {
		b = b.Bucket([]byte(sub))
	}
	return b
}

// rename flips a bit of the name of a row.
func (n rowName) rename(tx *bolt.Tx, bit int) error {
	b, key := n.around(tx), bytes.Clone(n.key)
	value := bytes.Clone(b.Get(n.key))
	key[bit/8] ^= 1 << (bit % 8)
	return errors.Join(b.Delete(n.key), b.Put(key, value))
}

// checkedNames checks a file as `ronbox db verify` does.
func checkedNames(t *testing.T, cfg *config.Config) store.Report {
	t.Helper()
	checks := []store.Check{{Name: "auth", Run: tokens.Check}}
	for _, s := range wiring.All() {
		if s.Checks != nil {
			checks = append(checks, s.Checks(t.Context())...)
		}
	}
	rep, err := store.Verify(t.Context(), cfg.Path(config.DatabaseName), nil, checks, nil)
	must(t, err)
	return rep
}

// rotProbe is one request and the answer that a sound node gives.
type rotProbe struct {
	token             string // "": the administrator's
	method, path, key string
	body              string
	want              reply
}

// rotTruth holds the answers of a sound node.
type rotTruth struct{ probes []rotProbe }

// enrich adds to the node of a release what it lacks, and records its answers.
func enrich(t *testing.T, cfg *config.Config, made time.Time) *rotTruth {
	t.Helper()
	truth := &rotTruth{}
	r := launchAt(t, cfg, clockOf(made))
	r.await("packs are served", func() bool { return r.ask(t, "/edge/tiles/one.json").Status == http.StatusOK })
	revoked, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{Sub: "gone", Scopes: []string{"wallet.read"}})
	must(t, err)
	capped, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{
		Sub: "capped", Scopes: []string{"wallet.transfer"}, Caveats: []string{"asset = ron", "ceiling_daily <= 10"},
	})
	must(t, err)
	_, err = r.socket().Revoke(t.Context(), nodeapi.RevokeRequest{TID: revoked.TID})
	must(t, err)
	for _, p := range []rotProbe{
		{"", "POST", "/v1/issue", "rot-issue", issue("frank", "1000", 1), reply{}},
		{"", "POST", "/v1/transfer", "rot-pay", pay("alice", "dan", "7", 7), reply{}},
		{"", "POST", "/v1/transfer", "rot-frozen", pay("bob", "dan", "7", 1), reply{}},
		{capped.Token, "POST", "/v1/transfer", "rot-capped", pay("alice", "dan", "8", 8), reply{}},
		{capped.Token, "POST", "/v1/transfer", "rot-beyond", pay("alice", "dan", "3", 9), reply{}},
		{revoked.Token, "GET", "/v1/balance?account=alice&asset=ron", "", "", reply{}},
		{"", "GET", "/edge/keys", "", "", reply{}},
	} {
		r.v1As(p.as(r), p.method, p.path, p.key, p.body)
		truth.probes = append(truth.probes, p)
	}
	for _, a := range answersOf(t, "de1fc8f") {
		truth.probes = append(truth.probes, rotProbe{method: "GET", path: a.Path})
	}
	for i := range truth.probes {
		p := &truth.probes[i]
		p.want = r.v1As(p.as(r), p.method, p.path, p.key, p.body)
	}
	r.halt()
	return truth
}

func (p rotProbe) as(r *rig) string {
	if p.token != "" {
		return p.token
	}
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
	must(r.t, err)
	return strings.TrimSpace(string(token))
}

// clockOf returns clocks that show the day on which a directory was made.
func clockOf(made time.Time) func() (time.Time, time.Duration) {
	var offset atomic.Int64
	offset.Store(int64(time.Until(made)))
	return turned(&offset)
}

// holds starts the node, compares its answers and checks the file again. A refusal of a node or
// service that is out is no wrong answer.
func (truth *rotTruth) holds(t *testing.T, cfg *config.Config, made time.Time, n rowName) {
	t.Helper()
	r := &rig{t: t, cfg: cfg, log: &logs{}, up: make(chan struct{}), exit: make(chan int, 1)}
	o := Options{within: patientStop, clock: clock.Options{Read: clockOf(made)}}
	node, err := assemble(cfg, Build{Version: "test"}, o, r.log)
	must(t, err)
	r.Node = node
	r.OnRunning(func(nodeapi.Status) { close(r.up) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.stop = cancel
	go func() { r.exit <- r.Run(ctx) }()
	select {
	case <-r.up:
		truth.compare(t, r, n)
		r.halt()
	case code := <-r.exit:
		r.services.Close(t.Context())
		if code != process.ExitCorrupt || n.ofGuest() {
			t.Errorf("%v: exit %d\n%s", n, code, r.log)
		}
	case <-time.After(patience):
		t.Fatalf("%v: the node does not serve\n%s", n, r.log)
	}
	if rep := checkedNames(t, cfg); rep.OK == (n.key != nil) && !n.cached() {
		t.Errorf("%v: after the node has run the check says %v", n, rep.OK)
	}
}

func (truth *rotTruth) compare(t *testing.T, r *rig, n rowName) {
	t.Helper()
	if n.key == nil {
		r.writable(true)
		r.await("packs are served", func() bool { return r.ask(t, "/edge/tiles/one.json").Status == http.StatusOK })
	}
	for _, p := range truth.probes {
		got := r.v1As(p.as(r), p.method, p.path, p.key, p.body)
		if got.status >= 500 && n.key != nil || n.cached() && strings.HasPrefix(p.path, "/edge/") {
			continue
		}
		if got.status != p.want.status ||
			!agrees(goldenAnswer{Path: p.path, Body: p.want.body}, goldenAnswer{Body: got.body}) {
			t.Errorf("%v: %s %s: %d %s\nwas %d %s", n, p.method, p.path, got.status, got.body, p.want.status, p.want.body)
		}
	}
}
