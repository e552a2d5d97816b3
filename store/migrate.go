package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Migration converts a file from one schema to the next, in steps that a crash may interrupt.
type Migration struct {
	From int       // converts schema From to From+1
	Make []*Bucket // created if missing
	// Step performs a part of the work, at most MigrationKeys rows put or deleted, and returns the
	// cursor of the next step, or nil at the end. It may use every bucket of the file. Like a
	// command it must not use a clock, randomness, map order or I/O: a step that was not committed
	// is repeated. nil: there is no row to convert.
	Step func(r Reader, w *Writes, cursor []byte) (next []byte, err error)
}

// MigrationKeys bounds the rows of one step, because each transaction writes the whole list of free
// pages.
const MigrationKeys = 10_000

// AddSums returns the step of a migration that appends a checksum to every row of the buckets,
// which must not hold sub-buckets. The tables of these buckets must be Summed afterwards.
func AddSums(buckets []*Bucket) func(Reader, *Writes, []byte) ([]byte, error) {
	return func(r Reader, w *Writes, cursor []byte) (next []byte, err error) {
		at := 0 // the first byte of the cursor; the rest is the next key
		if cursor != nil {
			at, cursor = int(cursor[0]), cursor[1:]
		}
		rows := 0
		for ; at < len(buckets); at++ {
			for key, value := range r.Range(buckets[at], cursor, nil) {
				if rows++; rows > MigrationKeys {
					return append([]byte{byte(at)}, key...), nil
				}
				key = bytes.Clone(key)
				w.Put(buckets[at], key, AddSum(key, bytes.Clone(value)))
			}
			cursor = nil
		}
		return nil, nil
	}
}

// migrations is a list of migrations and the schema that they lead to.
type migrations struct {
	schema int
	list   []Migration
}

// from returns the migration that begins at a schema. It panics if the list has no such migration.
func (m migrations) from(schema int) Migration {
	for _, one := range m.list {
		if one.From == schema {
			return one
		}
	}
	panic(fmt.Sprintf("store: no migration begins at schema %d", schema))
}

// migrationRow is the local row of a running migration.
type migrationRow struct {
	From   int    `cbor:"1,keyasint"`
	Cursor []byte `cbor:"2,keyasint"`
	Rows   uint64 `cbor:"3,keyasint"` // put and deleted so far
}

// migrator migrates one file to the schema of the program.
type migrator struct {
	db       *bolt.DB
	dir      string // folder of the snapshot
	table    migrations
	now      func() int64 // Unix ns
	progress func(stage string, done, total int64)
	marked   bool // the file is marked as in use
}

// target returns the schema of the program.
func (s *Store) target() int { return s.migrationTable().schema }

func (s *Store) migrationTable() migrations {
	own := []Migration{toLocal, toNames}
	return migrations{schema: cmp.Or(s.opt.schema, Schema), list: append(own, s.opt.Migrations...)}
}

// migrate migrates the file to the schema of the program, if it is older.
func (s *Store) migrate(ctx context.Context, db *bolt.DB) error {
	done, err := s.migrator(db).run(ctx)
	if err == nil && done.To != done.From {
		s.log.Info("migrated", "from", done.From, "to", done.To, "rows", done.Rows, "snapshot", done.Snapshot)
	}
	return err
}

func (s *Store) migrator(db *bolt.DB) *migrator {
	dir := s.config().SnapshotDir
	if !filepath.IsAbs(dir) { // relative to the folder of the file
		dir = filepath.Join(filepath.Dir(s.Path()), dir)
	}
	return &migrator{
		db: db, dir: dir, table: s.migrationTable(), progress: s.opt.Progress,
		now: func() int64 { return s.now().UnixNano() },
	}
}

// Migrated is the result of a migration.
type Migrated struct {
	From     int    `json:"from"`
	To       int    `json:"to"`
	Rows     uint64 `json:"rows"`              // put and deleted
	Snapshot string `json:"snapshot,omitzero"` // taken before
}

// Migrate migrates a file to the schema of this program, as Open and Prepare do. It first takes a
// verified snapshot pre-migrate-vN in dir, or beside the file if dir is "". If ctx ends the next
// run resumes the migration. Migrate returns ErrLocked if a process has the file open.
func Migrate(
	ctx context.Context,
	path, dir string,
	list []Migration,
	progress func(stage string, done, total int64),
) (Migrated, error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Migrated{}, err
		}
		dir = abs
	}
	cfg := DefaultConfig()
	cfg.LockTimeout, cfg.SnapshotDir = 0, dir
	return New(cfg, Options{Path: path, Progress: progress, Migrations: list}).migrateOffline(ctx)
}

func (s *Store) migrateOffline(ctx context.Context) (done Migrated, err error) {
	if err := s.Open(ctx); err != nil {
		return done, err
	}
	if err = s.checkUnclean(ctx); err == nil {
		done, err = s.migrator(s.db).run(ctx)
	}
	return done, errors.Join(err, s.Close())
}

// run performs every migration that the file needs.
func (m *migrator) run(ctx context.Context) (done Migrated, err error) {
	info, at, err := m.look()
	if err == nil {
		err = info.known(m.table.schema)
	}
	done.From, done.To = info.Schema, info.Schema
	if err == nil && info.Schema == m.table.schema && at.Cursor != nil {
		err = fmt.Errorf(
			"%w: a newer release has begun to migrate the file: run that release, or restore its snapshot",
			ErrSchema,
		)
	}
	if err != nil || info.Schema == m.table.schema {
		return done, err
	}
	if at.From == 0 { // not begun: a migration in progress already has its snapshot
		if done.Snapshot, err = m.snapshot(ctx, info); err != nil {
			return done, fmt.Errorf("snapshot before the migration: %w", err)
		}
	}
	for done.To < m.table.schema && err == nil {
		var rows uint64
		rows, err = m.migrateOne(ctx, m.table.from(done.To))
		done.Rows += rows
		if err == nil {
			done.To++
		}
	}
	if m.marked && info.Clean && (err == nil || ctx.Err() != nil && errors.Is(err, context.Cause(ctx))) {
		err = errors.Join(err, m.unmark())
	}
	return done, err
}

// unmark marks the file as cleanly closed again. If there is no space for that, the next boot only
// checks the file as after a crash.
func (m *migrator) unmark() error {
	err := guarded(func() error {
		return update(
			m.db,
			func(tx *bolt.Tx) error { return putClean(tx, true) },
		)
	})
	if err != nil && !clean(err) {
		return err
	}
	return nil
}

// look reads the state of the migration.
func (m *migrator) look() (info Info, at migrationRow, err error) {
	err = guarded(func() error {
		return m.db.View(func(tx *bolt.Tx) error {
			if info, err = readInfo(tx); err != nil {
				return err
			}
			raw := localRows(tx).Get(keyMigration)
			if raw == nil {
				return nil
			}
			if err := decodeSummed(keyMigration, raw, &at); err != nil || at.From != info.Schema {
				return fmt.Errorf("%w: row migration: %w", ErrCorrupt,
					errors.Join(err, fmt.Errorf("from %d", at.From)))
			}
			return nil
		})
	})
	return info, at, err
}

// migrateOne runs one migration from its cursor to its end.
func (m *migrator) migrateOne(ctx context.Context, one Migration) (rows uint64, err error) {
	stage := fmt.Sprintf("migrate v%d to v%d", one.From, one.From+1)
	for end := false; !end; {
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
		m.marked = true
		err = guarded(func() error {
			return update(m.db, func(tx *bolt.Tx) error {
				rows, end, err = m.step(tx, one)
				return err
			})
		})
		switch {
		case err != nil && clean(err):
			return rows, fullError(err)
		case err != nil:
			return rows, fmt.Errorf("%s: %w", stage, err)
		case m.progress != nil:
			m.progress(stage, int64(rows), 0)
		}
	}
	return rows, nil
}

// step is one transaction: it writes the rows, the cursor, and at the end the new schema. It also
// marks the file as in use: if a sync fails, the next boot must not trust the page cache.
func (m *migrator) step(tx *bolt.Tx, one Migration) (rows uint64, end bool, err error) {
	for _, b := range one.Make {
		if _, err := tx.CreateBucketIfNotExists([]byte(b.Name)); err != nil {
			return 0, false, fmt.Errorf("make bucket %s: %w", b.Name, err)
		}
	}
	if err := putClean(tx, false); err != nil {
		return 0, false, err
	}
	local := localRows(tx)
	at := migrationRow{From: one.From}
	if raw := local.Get(keyMigration); raw != nil {
		if err := decodeSummed(keyMigration, raw, &at); err != nil {
			return 0, false, fmt.Errorf("%w: row migration: %w", ErrCorrupt, err)
		}
	}
	w := &Writes{r: newTxReader(tx, nil)}
	next, err := one.run(w, at.Cursor)
	if err == nil && len(w.ops) > MigrationKeys {
		err = fmt.Errorf("a step of %d rows: the limit is %d", len(w.ops), MigrationKeys)
	}
	var p pen
	if err == nil {
		err = w.merge(&p)
	}
	if err == nil && at.From >= namesSchema {
		err = p.names.write(tx)
	}
	if err != nil {
		return 0, false, err
	}
	at.Cursor, at.Rows = next, at.Rows+uint64(len(w.ops))
	if next == nil {
		return at.Rows, true, m.finish(tx, at)
	}
	raw, err := encodeSummed(keyMigration, at)
	if err != nil {
		return 0, false, err
	}
	return at.Rows, false, local.Put(keyMigration, raw)
}

// run performs one step. A panic is returned as ErrInternal, or as a fault of the file.
func (one Migration) run(w *Writes, cursor []byte) (next []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			if err = fmt.Errorf("%w: %v", ErrInternal, v); w.r.broken(v) {
				err = &fileFault{v}
			}
		}
	}()
	if one.Step == nil {
		return nil, nil
	}
	return one.Step(w.r, w, cursor)
}

// finish sets the new schema and appends an audit row. The file of a clustered node gets no audit
// row: it would no longer be where the log of the cluster is.
func (m *migrator) finish(tx *bolt.Tx, at migrationRow) error {
	info, err := readInfo(tx)
	if err != nil {
		return err
	}
	members, err := readMembership(tx)
	if err != nil {
		return err
	}
	rows, err := tx.CreateBucketIfNotExists([]byte(auditBucket.Name))
	if err != nil {
		return err
	}
	p := info.position()
	p.at = offlineStamp(time.Unix(0, m.now()), p.at)
	note := Event{Event: "db.migrate", Decision: "allow", Reason: "start", Detail: map[string]string{
		"from": fmt.Sprint(at.From), "to": fmt.Sprint(at.From + 1), "rows": fmt.Sprint(at.Rows),
	}}
	if members == nil {
		if _, err := appendAudit(rows, &p, noRing, p.at, note); err != nil {
			return err
		}
		info = *info.with(p)
	}
	info.Schema = at.From + 1
	if err := writeInfo(tx, info); err != nil {
		return err
	}
	if info.Schema == m.table.schema {
		return localRows(tx).Delete(keyMigration)
	}
	// the next migration uses the same snapshot
	raw, err := encodeSummed(keyMigration, migrationRow{From: info.Schema})
	return errors.Join(err, localRows(tx).Put(keyMigration, raw))
}

// snapshot takes a snapshot of the file, unless an earlier run took one of the same state that
// still verifies. Its name contains the incarnation, because nodes may share the folder.
func (m *migrator) snapshot(ctx context.Context, info Info) (path string, err error) {
	stem := fmt.Sprintf("pre-migrate-v%d-%s-%d", info.Schema, info.Incarnation, info.Seq)
	shot := &shot{
		db: m.db, dir: m.dir, partial: stem + ".partial", at: time.Unix(0, m.now()).UTC(),
		sound: func() error { return nil },
		name:  func(uint64) string { return stem + ".db" },
	}
	if m.progress != nil {
		shot.progress = func(done, total int64) { m.progress("snapshot", done, total) }
	}
	path = filepath.Join(m.dir, stem+".db")
	rep, err := Verify(ctx, path, nil, nil, nil)
	if err == nil && rep.OK && rep.Manifest && rep.Info.Incarnation == info.Incarnation &&
		rep.Info.position() == info.position() {
		return path, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	partial := filepath.Join(m.dir, stem+".partial")
	if err := errors.Join(removeIfThere(path), removeIfThere(path+manifestSuffix), removeIfThere(partial)); err != nil {
		return "", err
	}
	taken, err := shot.take(ctx)
	return taken.Path, err
}
