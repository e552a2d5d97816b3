package content

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// rig is a content store on a file in a temporary folder. It is its owner, too.
type rig struct {
	t       testing.TB
	dir     string
	cfg     config.Config
	s       *Store
	refetch func(row tables.Stored) error // nil: nothing can be fetched
	fault   func(error)                   // nil: faults are not shown
	free    atomic.Int64                  // bytes of the disk without objects
}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), cfg: config.DefaultConfig()}
	r.cfg.CAS.MinFree = 0
	r.free.Store(1 << 40)
	for _, f := range change {
		f(r)
	}
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.dir, "ronbox.db")
	if err := store.Create(path, id); err != nil {
		t.Fatal(err)
	}
	metrics := obs.NewMetrics()
	catalog := flow.NewCatalog(metrics, hclog.NewNullLogger())
	db := store.New(store.DefaultConfig(), store.Options{
		Path:      path,
		Catalog:   catalog,
		Metrics:   metrics,
		Producers: map[store.Lane][]string{store.Work: {"edge.cas_writer"}},
	})
	db.Declare(service, tables.Buckets()...)
	r.s = New([]string{flow.HTTP}, Deps{
		Catalog: catalog,
		Store:   db,
		Dir:     cas.In(r.dir, cas.Faults{Free: r.space}),
		Log:     hclog.NewNullLogger(),
		Now:     time.Now,
		Config:  func() *config.Config { return &r.cfg },
		Owner:   r,
	})
	sup := flow.NewSupervisor(t.Context(), catalog, flow.Hooks{})
	if err := errors.Join(db.Open(t.Context()), db.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	sup.Start(db.Tasks()...)
	if err := r.s.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	sup.Start(r.s.Tasks()...)
	t.Cleanup(func() {
		catalog.CloseFedBy(service, flow.HTTP)
		sup.CancelBackground()
		sup.Drain(service, 5*time.Second, 5*time.Second)
		db.CloseLanes()
		sup.Drain("store", 5*time.Second, time.Second)
		sup.Close()
		if err := errors.Join(r.s.Close(context.Background()), db.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// space returns the free bytes of the disk.
func (r *rig) space() (int64, error) {
	has, _ := r.s.Held()
	return r.free.Load() - has.Bytes, nil
}

func (r *rig) Event(asset.Event)      {}
func (r *rig) Damaged(string, string) {}
func (r *rig) Draining() bool         { return false }
func (r *rig) Amnesia() bool          { return false }
func (r *rig) Shed() bool             { return false }

func (r *rig) Fault(err error) {
	if r.fault != nil {
		r.fault(err)
	}
}

func (r *rig) Refetch(_ context.Context, row tables.Stored) error {
	if r.refetch == nil {
		return asset.ErrNotFound
	}
	return r.refetch(row)
}

func (r *rig) Rehash(context.Context, func(pack.Info, error)) error { return nil }

// install stores an object under a URL.
func (r *rig) install(url, body string) (d b3.Digest, err error) {
	temp, err := r.s.Dir().Create()
	if err != nil {
		return d, err
	}
	if _, err = temp.Write([]byte(body)); err != nil {
		return d, err
	}
	d, size := temp.Sum()
	if err = temp.Seal(); err != nil {
		return d, err
	}
	_, err = r.s.Install(r.t.Context(), tables.Stored{URL: url, Path: url, Digest: d, Size: size}, temp)
	return d, err
}

func (r *rig) mustInstall(url, body string) b3.Digest {
	r.t.Helper()
	d, err := r.install(url, body)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

// open opens an object, past the memory, and closes it.
func (r *rig) open(ctx context.Context, d b3.Digest) error {
	r.s.Purge()
	o, _, err := r.s.Open(ctx, asset.Target{Digest: d, Name: asset.PathOf(d)})
	if err == nil {
		o.Close()
	}
	return err
}

// flip changes a byte of the file of an object.
func (r *rig) flip(d b3.Digest) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "edge", "cas", "b3", d.String()[3:5], d.String()[5:]))
	if err != nil || len(files) != 1 {
		r.t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		r.t.Fatal(err)
	}
	b[1] ^= 0x40
	if err := errors.Join(os.Chmod(files[0], 0o600), os.WriteFile(files[0], b, 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// verified runs Verify and returns the findings.
func (r *rig) verified(fix bool) (found []Finding) {
	r.t.Helper()
	v, err := r.s.Verify(r.t.Context(), VerifyOptions{Fix: fix, Found: func(f Finding) { found = append(found, f) }})
	if err != nil || v.Bad != len(found) {
		r.t.Fatalf("verify: %+v, %v, %d findings", v, err, len(found))
	}
	return found
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
