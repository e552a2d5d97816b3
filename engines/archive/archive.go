package archive

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
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
	store  *store.Store // set by Bind
	key    object.Key   // set by Bind
	target target.Target
	record recordFile
	tap    tap
	queue  outbox
	pause  func(n int) time.Duration // before the next try to send; pauseAfter, replaced by tests

	packTick, sendTick, keepTick *flow.Ticker

	rotated time.Time               // when the open raw file was last closed; owned by the packer
	held    time.Time               // before which no base is taken after a failure; owned by the keeper
	holds   int                     // failures of snapshots in a row; owned by the keeper
	swept   time.Time               // when the target was last pruned; owned by the keeper
	wanted  atomic.Int64            // when a base became due that the target does not have, Unix ns; 0: none
	asked   atomic.Bool             // a base was asked for
	opened  atomic.Bool             // the target has its mark
	failing atomic.Pointer[failure] // of the last call to the target; nil: it succeeded
	stage   atomic.Pointer[copying] // of the snapshot that is being taken; nil: none
	unbound atomic.Pointer[failure] // of Bind; nil: none
	refused atomic.Pointer[string]  // why no base can be taken; nil: one can
	series  *series
}

// failure is an error of the target.
type failure struct {
	err  error
	when time.Time
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
	ticker := func(name, task string, every time.Duration, doc string) *flow.Ticker {
		return flow.Every(d.Catalog, flow.Spec{
			Service: Service, Name: name, Consumers: []string{task}, Doc: doc,
		}, every)
	}
	a.packTick = ticker("pack_tick", "packer", syncEvery, "syncs the raw file, and looks whether it is to be closed")
	a.sendTick = ticker("send_tick", "sender", sendEvery, "looks for an object to send")
	a.keepTick = ticker("keep_tick", "keeper", keepEvery, "looks whether a line or a base is due")
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
		a.unbound.Store(&failure{err, a.d.Now()})
	}
	return err
}

func (a *Archive) bind(s *store.Store) error {
	a.store = s
	if err := os.MkdirAll(a.d.Dir, 0o700); err != nil {
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
	if err == nil {
		a.key, err = object.NewKey(seed)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// dropStrangers removes the local files of lines that the record does not have.
func (a *Archive) dropStrangers() error {
	all, err := os.ReadDir(a.d.Dir)
	for _, e := range all {
		if _, no := ulid.ParseStrict(e.Name()); no == nil && e.IsDir() && a.record.read().find(e.Name()) == nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(a.d.Dir, e.Name())))
		}
	}
	return err
}

// resume reads the local files of all lines, and goes on with the last one if it is that of the
// file.
func (a *Archive) resume() error {
	info := a.store.Info()
	r := a.record.read()
	for i := range r.Lines {
		l := &r.Lines[i]
		at, last, virgin, err := a.scan(l, info)
		if err != nil {
			return fmt.Errorf("line %s: %w", l.ID, err)
		}
		if l.Signer != a.key.Signer() { // of its objects: no more can be made
			for _, f := range a.tap.forget(l.ID) {
				if err := os.Remove(f.path); err != nil {
					return err
				}
			}
		}
		if i < len(r.Lines)-1 || l.Ended != "" {
			continue
		}
		if reason := a.differs(l, info, at); reason != "" {
			a.d.Log.Warn("archive_line_ends", "line", l.ID, "reason", reason)
			return a.beginLine(reason)
		}
		a.tap.begin(l, a.rawDir(l.ID), at, last, virgin)
	}
	if l := r.current(); l == nil {
		return a.beginLine(reasonFirst)
	}
	return nil
}

// differs returns the reason for which a file cannot go on with a line that ends at a position.
func (a *Archive) differs(l *line, info *store.Info, at store.Position) string {
	switch {
	case l.Schema != info.Schema || l.Buckets != bucketsOf(a.store):
		return reasonSchema
	case l.NodeID != info.NodeID || l.Incarnation != info.Incarnation:
		return reasonIncarnation
	case l.Signer != a.key.Signer():
		return reasonSigner
	case at != info.Position():
		return reasonGap
	}
	return ""
}

// bucketsOf returns a hash of the declarations of the buckets.
func bucketsOf(s *store.Store) b3.Digest {
	var text bytes.Buffer
	for _, b := range s.Buckets() {
		fmt.Fprintf(&text, "%s %d %t %t %t\n", b.Name, b.Class, b.Append, b.Subs, b.Proven)
	}
	return b3.Sum(text.Bytes())
}

// scan reads the raw files of a line, cuts off what is torn or was not committed, and queues its
// objects. It returns the end of the line.
func (a *Archive) scan(l *line, info *store.Info) (at store.Position, last b3.Digest, virgin bool, err error) {
	at, last, virgin = l.At, l.Last, l.Sum == ""
	if err := a.queueObjects(l); err != nil {
		return at, last, virgin, err
	}
	names, err := sortedNames(a.rawDir(l.ID))
	if err != nil {
		return at, last, virgin, err
	}
	limit := info.Position().Seq()
	if l.Incarnation != info.Incarnation {
		limit = 1 << 62 // the file was restored: it had all of them
	}
	whole := true
	for _, name := range names {
		path := filepath.Join(a.rawDir(l.ID), name)
		if l.Sum != "" && name < objectName(l.At.Seq()) { // the record has its object
			if err := os.Remove(path); err != nil {
				return at, last, virgin, err
			}
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return at, last, virgin, err
		}
		f := rawFile{line: l.ID, path: path, from: at}
		for rest := raw; whole; {
			e, next, ok := object.CutEntry(rest)
			whole = ok || len(rest) == 0
			if !ok {
				break
			}
			h, err := store.ReadEntry(e)
			if virgin && err == nil { // the line began with the next entry
				at, f.from = h.From, h.From
			}
			if err != nil || h.From != at || h.To.Seq() > limit || !virgin && h.Prev != last {
				whole = false
				break
			}
			if f.entries == 0 {
				f.first = h.To.At()
			}
			at, last, virgin, rest = h.To, h.Sum, false, next
			f.to, f.last, f.entries, f.size = h.To, h.Sum, f.entries+1, int64(len(raw)-len(next))
		}
		if f.entries == 0 {
			if err := os.Remove(path); err != nil {
				return at, last, virgin, err
			}
			continue
		}
		if f.size < int64(len(raw)) {
			if err := os.Truncate(path, f.size); err != nil {
				return at, last, virgin, err
			}
		}
		a.tap.adopt(f)
	}
	return at, last, virgin, nil
}

// queueObjects queues the log objects of a line that were made and not sent. One that the record
// does not know is made again.
func (a *Archive) queueObjects(l *line) error {
	names, err := sortedNames(a.outDir(l.ID))
	for _, name := range names {
		path := filepath.Join(a.outDir(l.ID), name)
		if len(name) != 16 || name >= objectName(l.At.Seq()) {
			err = errors.Join(err, os.Remove(path))
			continue
		}
		st, bad := os.Stat(path)
		if bad != nil {
			return bad
		}
		a.queue.push(outFile{line: l.ID, name: name, path: path, size: st.Size(), first: st.ModTime().UnixNano()})
		a.tap.freed(-st.Size())
	}
	return err
}

// sortedNames returns the names in a directory, which need not exist.
func sortedNames(dir string) (names []string, err error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, err
}

// beginLine ends the current line, if there is one, and begins another at the position of the file.
func (a *Archive) beginLine(reason string) error {
	id, err := ulid.New(ulid.Timestamp(a.d.Now()), rand.Reader)
	if err != nil {
		return err
	}
	info := a.store.Info()
	l := line{
		ID: id.String(), NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema,
		Buckets: bucketsOf(a.store), Signer: a.key.Signer(), Reason: reason,
		Began: info.Position(), At: info.Position(),
	}
	for _, dir := range []string{a.rawDir(l.ID), a.outDir(l.ID)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := errors.Join(host.SyncDir(filepath.Dir(a.rawDir(l.ID))), host.SyncDir(a.d.Dir)); err != nil {
		return err
	}
	if err := a.record.update(func(r *record) {
		if old := r.current(); old != nil {
			old.Next = nil
			if old.Ended == "" {
				old.Ended = reason
			}
		}
		r.Foreign = r.Foreign || reason == reasonForeign
		r.Lines = append(r.Lines, l)
	}); err != nil {
		return err
	}
	a.series.lines[reason](1)
	a.d.Log.Info("archive_line", "line", l.ID, "reason", reason, "seq", info.Seq, "signer", a.key.Signer())
	a.tap.begin(&l, a.rawDir(l.ID), info.Position(), b3.Digest{}, true)
	return nil
}

func (a *Archive) rawDir(line string) string { return filepath.Join(a.d.Dir, line, "raw") }
func (a *Archive) outDir(line string) string { return filepath.Join(a.d.Dir, line, "out") }
func (a *Archive) baseDir() string           { return filepath.Join(a.d.Dir, "base") }

// Close syncs the raw file. The committer and the tasks have ended.
func (a *Archive) Close() error { return a.tap.finish() }
