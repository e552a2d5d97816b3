package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/store/lock"
)

// SnapshotOptions holds the options of a snapshot.
type SnapshotOptions struct {
	Compact  bool              // leave out deleted data and free pages; takes longer
	Versions map[string]string // versions of the program and its parts, for the manifest; may be nil
	CAS      *CASList          // objects stored beside the file, for the manifest; may be nil
}

// Snapshot copies the state of one moment into dir, which is created if missing, while writers
// continue. It first removes the leftovers of killed snapshots there. The copy gets its name and
// manifest only after it was verified. Snapshot blocks until then. progress, which may be nil,
// counts bytes over both passes, copying and checking. Snapshot returns ErrBusy if another snapshot
// is running, ErrCorrupt if the copy does not verify (it is kept with the suffix .bad), and
// ErrAmnesia for a store in memory. If ctx ends no file is left.
func (s *Store) Snapshot(
	ctx context.Context,
	dir string,
	o SnapshotOptions,
	progress func(done, total int64),
) (Manifest, error) {
	if s.opt.Memory != nil {
		return Manifest{}, fmt.Errorf("snapshot: %w", ErrAmnesia)
	}
	if err := s.readable(ctx); err != nil {
		return Manifest{}, err
	}
	if !s.copying.CompareAndSwap(false, true) {
		return Manifest{}, fmt.Errorf("a snapshot is being taken: %w", ErrBusy)
	}
	defer s.copying.Store(false)
	if _, err := s.Sweep(dir); err != nil { // the disk may hold the copy all the same
		s.log.Warn("leftovers of killed snapshots were not all removed", "reason", err.Error())
	}
	start := s.mono()
	slot := s.views.begin(start)
	at := s.now().UTC()
	stamp := at.Format("20060102T150405.000Z")
	shot := &shot{
		db: s.db, schema: s.schema, dir: dir, at: at, options: o, progress: progress, sound: s.Err,
		partial: "ronbox-" + at.Format("20060102T150405.000000000Z") + partialOf(s.Info().Incarnation),
		copied:  func() { s.views.end(slot) },
		name:    func(seq uint64) string { return fmt.Sprintf("ronbox-%s-%d.db", stamp, seq) },
	}
	m, err := shot.take(ctx)
	if err = s.readError(err); err != nil {
		return Manifest{}, fmt.Errorf("snapshot: %w", err)
	}
	s.metrics.snapshot(time.Duration(s.mono() - start).Seconds())
	s.log.Info("snapshot_taken", "file", m.Path, "bytes", m.Size, "seq", m.Seq, "compacted", m.Compacted)
	return m, nil
}

// HoldsCopy returns ErrFull if a copy of the file beside it would leave less free space on the disk
// than writers need.
func (s *Store) HoldsCopy() error {
	last := s.room.last.Load()
	if last == nil || s.room.memory {
		return nil
	}
	p := *last
	p.disk, p.own, p.total = diskSpace(s.room.file)
	if p.disk < 0 || p.disk-p.size >= p.reserve() {
		return nil
	}
	return fmt.Errorf("%w: a copy takes %d MiB, the disk has %d MiB left, %d MiB are kept free", ErrFull, p.size>>20,
		p.disk>>20, p.reserve()>>20)
}

// shot is one snapshot in the making.
type shot struct {
	db       *bolt.DB
	schema   schema
	dir      string
	partial  string // name of the copy until it is complete
	name     func(seq uint64) string
	at       time.Time
	options  SnapshotOptions
	progress func(done, total int64)
	copied   func()       // called when the read transaction has ended
	sound    func() error // returns an error if the store has failed: the copy may hold data that is not on the disk
}

// take copies, verifies and publishes. It holds a shared lock of the folder, which excludes a sweep
// but not other snapshots.
func (t *shot) take(ctx context.Context) (m Manifest, err error) {
	ended := false
	end := func() {
		if !ended && t.copied != nil {
			t.copied()
		}
		ended = true
	}
	defer end()
	folder, err := lock.ShareFolder(t.dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	partial := filepath.Join(t.dir, t.partial)
	defer func() { err = errors.Join(err, removeIfThere(partial)) }() // already renamed on success
	if m, err = t.copyTo(ctx, partial); err != nil {
		return m, err
	}
	end()
	m.At, m.Versions, m.CAS, m.Compacted = t.at, t.options.Versions, t.options.CAS, t.options.Compact
	m.File = t.name(m.Seq)
	m.Path = filepath.Join(t.dir, m.File)
	m.ManifestPath = m.Path + manifestSuffix
	if err = vacant(m.Path); err != nil {
		return m, err
	}
	err = m.measure(ctx, partial, nil, t.progress)
	if errors.Is(err, ErrCorrupt) {
		return m, errors.Join(err, os.Rename(partial, m.Path+".bad"))
	}
	if err = errors.Join(err, t.sound()); err != nil {
		return m, err
	}
	return m, m.publish(partial)
}

// publish writes the manifest and then renames the copy.
func (m Manifest) publish(partial string) error {
	err := m.write()
	if err == nil {
		err = os.Rename(partial, m.Path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(m.ManifestPath))
	}
	return host.SyncDir(filepath.Dir(m.Path))
}

// vacant returns an error if path exists.
func vacant(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	return nil
}

// copyTo writes the state of one read transaction, synced. The transaction ends when the copy is
// complete.
func (t *shot) copyTo(ctx context.Context, path string) (m Manifest, err error) {
	err = readRows(t.db, t.schema, func(r *txReader) error {
		info, err := r.info()
		if err != nil {
			return err
		}
		m = Manifest{
			Format:      manifestFormat,
			NodeID:      info.NodeID,
			Incarnation: info.Incarnation,
			Schema:      info.Schema,
			Seq:         info.Seq,
			PageSize:    PageSize,
			Size:        r.tx.Size(),
		}
		if t.options.Compact {
			r.inside = true
			m.Size, err = rewrite(ctx, r.tx, path, m.Size, halfProgress(t.progress, 0))
			r.inside = false
			return err
		}
		m.B3, err = t.copyPages(ctx, r.tx, path)
		return err
	})
	if err == nil && t.options.Compact {
		m.B3, err = hashFile(path, &copier{ctx: ctx, hash: b3.New()})
	}
	return m, roomError(err)
}

// copyPages copies the pages of a transaction unchanged.
func (t *shot) copyPages(ctx context.Context, tx *bolt.Tx, path string) (sum b3.Digest, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	c := &copier{ctx: ctx, to: f, hash: b3.New(), total: tx.Size(), progress: halfProgress(t.progress, 0)}
	_, err = tx.WriteTo(c)
	if c.err != nil {
		err = c.err
	}
	if err == nil {
		err = f.Sync()
	}
	return c.hash.Sum32(), err
}

// measure verifies the copy as it is on the disk and sets the row counts and the state hash.
func (m *Manifest) measure(
	ctx context.Context, path string, checks []Check, progress func(done, total int64),
) error {
	if err := dropPages(path); err != nil {
		return err
	}
	v := &verifier{ctx: ctx, file: path, want: m, checks: checks, progress: halfProgress(progress, 1)}
	rep, err := v.run()
	if err != nil {
		return err
	}
	if !rep.OK {
		return fmt.Errorf("%w: the copy does not verify: %s", ErrCorrupt, rep.Problem)
	}
	m.Buckets, m.StateHash = rep.Buckets, rep.StateHash
	return nil
}

// copyChunk is the size of one read, hash and write, bytes.
const copyChunk = 1 << 20

// copier is a writer that hashes the data, reports progress and fails when its context ends.
type copier struct {
	ctx      context.Context
	to       io.Writer // nil: hash only
	hash     *b3.Hasher
	done     int64
	total    int64
	progress func(done, total int64) // may be nil
	err      error                   // first error of Write; bbolt passes on only its text
}

// Write implements io.Writer.
func (c *copier) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		c.err = context.Cause(c.ctx)
		return 0, c.err
	}
	if c.to != nil {
		if n, err := c.to.Write(p); err != nil {
			c.err = err
			return n, err
		}
	}
	_, _ = c.hash.Write(p) // never fails
	c.done += int64(len(p))
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom, so that io.Copy uses large chunks.
func (c *copier) ReadFrom(r io.Reader) (n int64, err error) {
	buf := make([]byte, copyChunk)
	for {
		m, err := io.ReadFull(r, buf)
		if m > 0 {
			if _, werr := c.Write(buf[:m]); werr != nil {
				return n, werr
			}
			n += int64(m)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// hashFile hashes a whole file.
func hashFile(path string, c *copier) (b3.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return b3.Digest{}, err
	}
	_, err = c.ReadFrom(f)
	return c.hash.Sum32(), errors.Join(err, f.Close())
}

// manifestFormat is the version of the manifest format.
const manifestFormat = 1

// manifestMax is the maximum size of a manifest, bytes.
const manifestMax = 16 << 20

// manifestSuffix is appended to the name of a snapshot to name its manifest.
const manifestSuffix = ".manifest.json"

// Manifest describes a snapshot. It is stored beside it as <snapshot>.manifest.json.
type Manifest struct {
	Format      int               `json:"format"`
	File        string            `json:"file"` // file name of the snapshot
	NodeID      string            `json:"node_id"`
	Incarnation string            `json:"incarnation"`
	Schema      int               `json:"schema"`
	Seq         uint64            `json:"seq"`
	At          time.Time         `json:"at"`
	PageSize    int               `json:"page_size"`
	Size        int64             `json:"size"`
	B3          b3.Digest         `json:"b3"`
	StateHash   b3.Digest         `json:"state_hash"`
	Buckets     map[string]uint64 `json:"buckets"` // rows by bucket
	Compacted   bool              `json:"compacted,omitzero"`
	Versions    map[string]string `json:"versions,omitempty"` // versions of the program and its parts
	CAS         *CASList          `json:"cas,omitzero"`

	Path         string `json:"-"` // of the snapshot
	ManifestPath string `json:"-"`
}

// CASList describes the objects stored beside the file.
type CASList struct {
	Count  uint64    `json:"count"`
	Bytes  int64     `json:"bytes"`
	ListB3 b3.Digest `json:"list_b3"` // hash of the sorted hashes
}

// ReadManifest reads the manifest beside a snapshot. It returns fs.ErrNotExist if the snapshot has
// no manifest.
func ReadManifest(snapshot string) (Manifest, error) {
	path := snapshot + manifestSuffix
	f, err := os.Open(path)
	if err != nil {
		return Manifest{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, manifestMax))
	if err = errors.Join(err, f.Close()); err != nil {
		return Manifest{}, err
	}
	m, err := parseManifest(raw)
	if err != nil {
		return m, fmt.Errorf("manifest %s: %w", path, err)
	}
	m.Path, m.ManifestPath = snapshot, path
	return m, nil
}

// parseManifest parses a manifest and rejects unknown members.
func parseManifest(raw []byte) (m Manifest, err error) {
	if err := json.Unmarshal(raw, &m, json.RejectUnknownMembers(true)); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.Format != manifestFormat {
		return Manifest{}, fmt.Errorf("%w: format %d, not %d", ErrSchema, m.Format, manifestFormat)
	}
	return m, nil
}

// describes returns an error if the manifest does not match the identity stored in the file.
func (m Manifest) describes(i Info) error {
	type identity struct {
		node, incarnation string
		schema, pageSize  int
		seq               uint64
	}
	return differ(
		identity{m.NodeID, m.Incarnation, m.Schema, m.PageSize, m.Seq},
		identity{i.NodeID, i.Incarnation, i.Schema, PageSize, i.Seq},
	)
}

// write writes and syncs the manifest.
func (m Manifest) write() error {
	raw, err := json.Marshal(m, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(m.ManifestPath, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
