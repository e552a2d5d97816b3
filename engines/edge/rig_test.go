package edge_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet/lines"
	"ronbox/store"
)

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// rig is an engine on a real store in a temporary folder, with a supervisor.
type rig struct {
	t       testing.TB
	dir     string
	cfg     config.Config
	metrics *obs.Metrics
	board   *obs.Board
	catalog *flow.Catalog
	store   *store.Store
	sup     *flow.Supervisor
	phase   *flow.Watch[flow.Phase]
	e       *edge.Engine
	amnesia bool
	fleet   *edge.FleetConfig
	names   edge.Names
	members content.Members
	pool    *lines.Pool
	log     hclog.Logger
	faults  func(op string) error
	free    func() (int64, error) // bytes of the disk; nil: those it has
	clock   atomic.Int64          // added to the wall clock, ns
	stopped bool
}

// How long a 404 and a 5xx of a host are remembered.
const (
	negativeFor = 60 * time.Second
	faultyFor   = 5 * time.Second
)

// hotObject is the largest object that is held in memory.
const hotObject = 1 << 20

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), cfg: config.DefaultConfig(), log: hclog.NewNullLogger(), stopped: true}
	r.cfg.CAS.MinFree = 0
	for _, f := range change {
		f(r)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(r.db(), id); err != nil {
		t.Fatal(err)
	}
	r.open()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) db() string     { return filepath.Join(r.dir, "ronbox.db") }
func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }

// freeSpace returns the free bytes of the disk.
func (r *rig) freeSpace() (int64, error) {
	if r.free != nil {
		return r.free()
	}
	return cas.In(r.dir, cas.Faults{}).Free()
}

// open boots the engine without its tasks.
func (r *rig) open() {
	r.t.Helper()
	r.openStore()
	if err := r.e.Recover(context.Background()); err != nil {
		r.t.Fatalf("recover: %v", err)
	}
}

// openStore opens the file, and makes an engine that has not recovered.
func (r *rig) openStore() {
	r.t.Helper()
	ctx := context.Background()
	r.metrics = obs.NewMetrics()
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, r.log)
	r.phase = flow.NewWatch(r.catalog,
		flow.Spec{Service: "node", Name: "lifecycle", Producers: []string{"supervisor"}, Consumers: []string{"*"}},
		flow.Running)
	var stamps func() time.Time
	if r.fleet != nil && r.fleet.Signer != nil { // statements depend on both clocks
		stamps = r.now
	}
	r.store = store.New(store.DefaultConfig(), store.Options{
		Now:       stamps,
		Path:      r.db(),
		Catalog:   r.catalog,
		Metrics:   r.metrics,
		Producers: map[store.Lane][]string{store.Work: {"edge.cas_writer", "edge.verifier", "edge.meter"}},
	})
	r.pool = lines.New(lines.Deps{Catalog: r.catalog, Metrics: r.metrics, Rule: plainRule})
	r.e = edge.New(r.cfg, edge.Deps{
		Catalog:   r.catalog,
		Store:     r.store,
		Metrics:   r.metrics,
		Board:     r.board,
		Now:       r.now,
		Lifecycle: r.phase,
		DataDir:   r.dir,
		Amnesia:   r.amnesia,
		Fleet:     r.fleet,
		Names:     r.names,
		Members:   r.members,
		Log:       r.log,
		Faults:    cas.Faults{Op: r.faults, Free: r.freeSpace},
	})
	r.sup = flow.NewSupervisor(ctx, r.catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(ctx), r.store.Prepare(ctx)); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.stopped = false
}

func (r *rig) start() *rig {
	r.sup.Start(r.e.Tasks()...)
	return r
}

// stop shuts down in order. It may be called again.
func (r *rig) stop() { r.drain(5 * time.Second) }

// drain shuts down and lets the tasks run for within. It returns the number of aborted tasks.
func (r *rig) drain(within time.Duration) (aborted int) {
	if r.stopped {
		return 0
	}
	r.stopped = true
	r.phase.Store(flow.Draining)
	r.catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	aborted = r.sup.Drain(service, within, 5*time.Second)
	r.store.CloseLanes()
	r.sup.Drain("store", 5*time.Second, time.Second)
	r.sup.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.e.Close(ctx); err != nil {
		r.t.Error(err)
	}
	r.pool.Close()
	if err := r.store.Close(); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
	return aborted
}

// reboot stops the engine and starts another one on the same files.
func (r *rig) reboot() {
	r.stop()
	r.open()
	r.start()
}

// item is an object that burst installs.
type item struct {
	row  tables.Stored
	body string
}

func newItem(url, body string) item {
	return item{tables.Stored{URL: url, Path: strings.TrimPrefix(url, "https://"),
		Digest: b3.Sum([]byte(body)), Size: int64(len(body))}, body}
}

// burst starts the tasks, and installs objects in this order and in one burst of the writer.
func (r *rig) burst(all ...item) {
	r.t.Helper()
	var group sync.WaitGroup
	for i, o := range all {
		group.Go(func() {
			temp, err := r.e.Content().Dir().Create()
			if err == nil {
				_, err = temp.Write([]byte(o.body))
			}
			if err = errors.Join(err, temp.Seal()); err == nil {
				_, err = r.e.Content().Install(context.Background(), o.row, temp)
			}
			if err != nil {
				r.t.Error(err)
			}
		})
		until(r.t, "it is queued", func() bool { return r.queued("cas_tx") == i+1 })
	}
	r.start()
	group.Wait()
}

// queued returns how many entries a queue holds.
func (r *rig) queued(name string) int {
	for _, c := range r.catalog.Channels() {
		if c.Service == service && c.Name == name {
			return c.Len
		}
	}
	return 0
}

// read returns the bytes of an asset.
func (r *rig) read(path string) (string, *asset.Object, error) {
	path, query, _ := strings.Cut(path, "?")
	o, err := r.e.Asset(context.Background(), path, query)
	if err != nil {
		return "", nil, err
	}
	defer o.Close()
	b := o.Bytes
	if o.File != nil {
		b, err = io.ReadAll(o.File)
	}
	if got := b3.Sum(b); got != o.Digest || int64(len(b)) != o.Size {
		r.t.Errorf("%s: %d bytes of %s, said to be %d of %s", path, len(b), got, o.Size, o.Digest)
	}
	return string(b), o, err
}

func (r *rig) want(path, body string) *asset.Object {
	r.t.Helper()
	got, o, err := r.read(path)
	if err != nil || got != body {
		r.t.Fatalf("%s: %.40q, %v, want %.40q", path, got, err, body)
	}
	return o
}

func (r *rig) refused(path string, want error) {
	r.t.Helper()
	if _, _, err := r.read(path); !errors.Is(err, want) {
		r.t.Fatalf("%s: %v, want %v", path, err, want)
	}
}

// reason returns the reason of a FillError, or "" for another error.
func reason(err error) asset.Reason {
	var failed *asset.FillError
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return ""
}

// count returns the sum of the series of a family that have the labels.
func (r *rig) count(family string, pairs ...string) (sum float64) {
	r.t.Helper()
	families, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			has := map[string]string{"service": ""}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if has["service"] != service {
				continue
			}
			for i := 0; i < len(pairs); i += 2 {
				if has[pairs[i]] != pairs[i+1] {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// file returns the path of an object.
func (r *rig) file(d b3.Digest) string {
	text := hex.EncodeToString(d[:])
	return filepath.Join(r.dir, "edge", "cas", "b3", text[:2], text[2:])
}

// sound checks that every row has its object, every object its bytes and its row, and that tmp has
// only partials, which it drops.
func (r *rig) sound() {
	r.t.Helper()
	var has tables.Tally
	err := tables.Scan(context.Background(), r.store, tables.Blobs, func(name b3.Digest, b tables.BlobRow) error {
		if _, err := r.e.Content().Dir().Read(name, b.Size); err != nil {
			r.t.Errorf("object %s: %v", name, err)
		}
		has.Add(tables.Tally{Bytes: b.Size, Objects: 1})
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	err = tables.Scan(context.Background(), r.store, tables.Paths, func(b3.Digest, tables.Stored) error {
		has.URLs++
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	listed := int64(0)
	err = tables.Scan(context.Background(), r.store, tables.Keys, func(k tables.URLKey, row tables.KeyRow) error {
		has.Add(row.Pins())
		stored, err := tables.Find(context.Background(), r.store, tables.Paths, k.Hash)
		if row.Lost != (err != nil) || stored.URL != "" && stored.URL != row.URL(k) || stored.Size != row.Size {
			r.t.Errorf("%q: %+v, %+v, %v", k.Head, row, stored, err)
		}
		if !row.Lost {
			listed++
		}
		return nil
	})
	if err != nil || listed != has.URLs {
		r.t.Errorf("%d of %d URLs are listed, %v", listed, has.URLs, err)
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "b3", "*", "*"))
	if err != nil || int64(len(files)) != has.Objects {
		r.t.Errorf("%d files, %d rows, %v", len(files), has.Objects, err)
	}
	r.e.Fills().Shed()
	r.noTemps()
	if got, reserved := r.e.Content().Held(); got != has || reserved != 0 {
		r.t.Errorf("counted %+v, %d reserved; there are %+v", got, reserved, has)
	}
}

func (r *rig) noTemps() {
	r.t.Helper()
	until(r.t, "nothing is left in tmp", func() bool { // a failed store is tried periodically
		left, err := os.ReadDir(filepath.Join(r.dir, "edge", "cas", "tmp"))
		return err == nil && len(left) == 0
	})
}

// until polls ok for up to a minute.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// host is a TLS server named localhost that counts its requests.
type host struct {
	*httptest.Server
	name  string // with the port
	ca    string // the file of the certificate
	asked atomic.Int64
}

// certificate returns a certificate for localhost, valid from two days ago to end.
func certificate(t testing.TB, end time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spec := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              end,
		DNSNames:              []string{"localhost"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, spec, spec, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{
		Certificate: [][]byte{der},
		PrivateKey:  key,
	}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

var shared = sync.OnceValues(func() (c struct {
	cert tls.Certificate
	pem  []byte
}, err error) {
	c.cert, c.pem = certificate(nopTB{}, time.Now().Add(time.Hour))
	return c, nil
})

// nopTB lets certificate run outside of a test.
type nopTB struct{ testing.TB }

func (nopTB) Helper()           {}
func (nopTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func newHost(t testing.TB, h http.HandlerFunc) *host {
	t.Helper()
	c, _ := shared()
	return newHostWith(t, c.cert, c.pem, h)
}

func newHostWith(t testing.TB, cert tls.Certificate, ca []byte, h http.HandlerFunc) *host {
	t.Helper()
	out := &host{ca: filepath.Join(t.TempDir(), "ca.pem")}
	if err := os.WriteFile(out.ca, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	out.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		out.asked.Add(1)
		h(w, q)
	}))
	out.Config.ErrorLog = log.New(io.Discard, "", 0)
	out.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	out.StartTLS()
	_, port, _ := net.SplitHostPort(out.Listener.Addr().String())
	out.name = "localhost:" + port
	t.Cleanup(func() { out.CloseClientConnections(); out.Close() })
	return out
}

// on lets a rig fetch from h.
func on(h *host, more ...func(*config.Config)) func(*rig) {
	return func(r *rig) {
		r.cfg.Mode, r.cfg.Allow, r.cfg.CAFile = config.ModeLive, append(r.cfg.Allow, h.name), h.ca
		r.cfg.AllowPrivate = []string{"127.0.0.0/8", "::1/128"}
		r.cfg.Retry.LiveFill.BaseMS, r.cfg.Retry.LiveFill.MaxMS = 1, 2
		r.cfg.Ingress.TimeoutSecs = 30 // for a busy machine
		for _, f := range more {
			f(&r.cfg)
		}
	}
}

// serve answers with body under a strong ETag.
func serve(w http.ResponseWriter, body string) {
	w.Header().Set("ETag", `"`+b3.Sum([]byte(body)).String()[3:19]+`"`)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, body)
}

// echo serves the path of the request.
func echo(w http.ResponseWriter, q *http.Request) {
	serve(w, "of "+strings.TrimPrefix(q.URL.Path, "/"))
}
