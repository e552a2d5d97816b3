package archive

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
	"ronbox/store"
)

// Service is the name of the archive among the services.
const Service = "archive"

// Folder is the name of the archive's folder in the data directory.
const Folder = "archive"

// Deps are the neighbours of an Archive.
type Deps struct {
	Dir      string // of local files; it is created
	Catalog  *flow.Catalog
	Metrics  *obs.Metrics
	Log      hclog.Logger
	Now      func() time.Time
	Versions map[string]string // of the program and its parts, for manifests
	Based    func(time.Time)   // called when a base that was taken at a time is complete; may be nil
}

// Archive keeps the changes of a node in a target. New makes one, Bind gives it the store, and its
// tasks run until the node stops.
type Archive struct {
	d      Deps
	cfg    atomic.Pointer[Config]
	store  *store.Store               // set by Bind
	key    atomic.Pointer[object.Key] // an empty one until Bind has read it
	target target.Target
	record recordFile
	tap    tap
	queue  outbox
	pacer  pacer
	pause  func(n int) time.Duration // before the next try to send; pauseAfter, replaced by tests

	packTick, sendTick, keepTick *flow.Ticker

	rotated time.Time               // when the open raw file was last closed; owned by the packer
	held    time.Time               // before which no base is taken after a failure; owned by the keeper
	holds   int                     // failures of snapshots in a row; owned by the keeper
	swept   time.Time               // when the target was last pruned; owned by the keeper
	wanted  atomic.Int64            // when a base became due that the target does not have, Unix ns; 0: none
	asked   atomic.Bool             // a base was asked for
	opened  atomic.Bool             // the target has its mark
	unread  atomic.Int64            // until then the target, which does not permit it, is not read again; Unix ns
	stage   atomic.Pointer[copying] // of the snapshot that is being taken; nil: none
	series  *series

	// how the last turn of each step has failed; nil: it succeeded
	unbound, unsent, unpacked, untended, unbased, unpruned atomic.Pointer[failure]
}

// failure is an error of a step.
type failure struct{ err error }

// noted keeps how a step has ended, and logs an error that is not the one before.
func (a *Archive) noted(last *atomic.Pointer[failure], step string, err error) {
	if err == nil {
		last.Store(nil)
		return
	}
	if was := last.Swap(&failure{err}); was == nil || was.err.Error() != err.Error() {
		a.d.Log.Warn("archive_failed", "step", step, "reason", err.Error())
	}
}

// copying is the progress of a snapshot.
type copying struct{ done, total int64 }

// New returns an archive with a valid configuration that has a target. It opens and starts nothing.
func New(cfg Config, d Deps) (_ *Archive, err error) {
	a := &Archive{d: d, pause: pauseAfter, record: recordFile{path: filepath.Join(d.Dir, recordName)}}
	server := cfg.Server()
	server.Credentials = func() string { return a.cfg.Load().CredentialsFile }
	if a.target, err = target.Parse(cfg.Target, server); err != nil {
		return nil, err
	}
	a.record.now.Store(&record{Format: 1})
	a.key.Store(&object.Key{})
	ticker := func(name, task string, every time.Duration, doc string) *flow.Ticker {
		return flow.Every(d.Catalog, flow.Spec{
			Service: Service, Name: name, Consumers: []string{task}, Doc: doc,
		}, every)
	}
	a.packTick = ticker("pack_tick", "packer", syncEvery, "syncs the raw file, and looks whether it is to be closed")
	a.sendTick = ticker("send_tick", "sender", sendEvery, "looks for an object to send")
	a.keepTick = ticker("keep_tick", "keeper", keepEvery, "looks whether a line or a base is due")
	a.tap.wake = a.packTick.Wake
	a.Reload(cfg)
	a.series = newSeries(d.Metrics, a)
	return a, nil
}

// Reload applies new values. It does not block.
func (a *Archive) Reload(cfg Config) {
	a.cfg.Store(&cfg)
	a.tap.limits.Store(&limits{
		maxLocal: cfg.MaxLocal.Bytes(), always: cfg.Fsync == syncAlways,
		spare: func() int64 { return a.store.DiskSpare() },
	})
}

// Tap returns the tap for the options of the store.
func (a *Archive) Tap() store.Tap { return &a.tap }

// Tasks returns the tasks of the archive.
func (a *Archive) Tasks() []flow.Task {
	return []flow.Task{
		{Service: Service, Name: "packer", Background: true, Run: a.runPacker,
			Doc: "syncs raw files and makes log objects of them"},
		{Service: Service, Name: "sender", Background: true, Run: a.runSender,
			Doc: "sends log objects, oldest first, and parts of a base between them"},
		{Service: Service, Name: "keeper", Background: true, Run: a.runKeeper,
			Doc: "begins lines, takes bases and deletes what is not kept"},
	}
}

// Bind reads the local files and begins to capture. s is prepared and its committer does not run
// yet. An error of local files leaves the archive off, and the node alone.
func (a *Archive) Bind(s *store.Store) error {
	err := a.bind(s)
	if err != nil {
		a.unbound.Store(&failure{err})
	}
	return err
}

func (a *Archive) bind(s *store.Store) error {
	a.store = s
	if err := os.MkdirAll(a.d.Dir, 0o700); err != nil {
		return err
	}
	if err := host.SyncDir(filepath.Dir(a.d.Dir)); err != nil {
		return err
	}
	if err := a.loadKey(); err != nil {
		return err
	}
	if err := a.record.open(); err != nil {
		a.d.Log.Warn("archive_state", "reason", err.Error(), "effect", "a new line begins")
	}
	if r, where := a.record.read(), a.cfg.Load().where(); r.Target != where {
		change := func(r *record) { *r = record{Format: 1, Target: where} }
		if err := a.record.update(change); err != nil {
			return err
		}
	}
	if err := a.dropStrangers(); err != nil {
		return err
	}
	return a.resume()
}

// loadKey reads the key that signs objects, or makes it.
func (a *Archive) loadKey() error {
	path := filepath.Join(a.d.Dir, "archive.key")
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		seed = make([]byte, 32)
		if _, err = rand.Read(seed); err != nil {
			return err
		}
		err = host.ReplaceFile(path, 0o600, func(w io.Writer) error {
			_, err := w.Write(seed)
			return err
		})
	}
	var key object.Key
	if err == nil {
		key, err = object.NewKey(seed)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	a.key.Store(&key)
	return nil
}

// Close syncs the raw file. The committer and the tasks have ended.
func (a *Archive) Close() error { return a.tap.finish() }
