package store

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"ronbox/store/page"
)

// ReadOnly is a file opened for reading that no process writes: the file of a stopped node, or a
// snapshot.
type ReadOnly struct {
	db      *bolt.DB
	path    string
	size    int64
	info    Info
	buckets []*Bucket
	members *Membership // nil: the file of a node alone
}

// OpenReader opens a file for reading. It returns a LockedError if a process has the file open for
// writing, and ErrCorrupt if the file cannot be read.
func OpenReader(path string) (*ReadOnly, error) {
	return openReader(path, opening{}, Schema)
}

// openReader opens a file for reading. It returns ErrSchema if the schema of the file is newer than
// schema.
func openReader(path string, o opening, schema int) (*ReadOnly, error) {
	o.readOnly = true
	db, err := openBolt(path, &o)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path) // after the lock: no process writes the file
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r := &ReadOnly{db: db, path: path, size: st.Size()}
	err = guarded(func() error { return db.View(r.readMeta) })
	if err == nil {
		err = r.info.known(schema)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

func (r *ReadOnly) readMeta(tx *bolt.Tx) (err error) {
	if r.info, err = readInfo(tx); err != nil {
		return err
	}
	if r.buckets, err = readBuckets(tx); err != nil {
		return err
	}
	r.members, err = readMembership(tx)
	return err
}

// Info returns the identity and position stored in the file.
func (r *ReadOnly) Info() Info { return r.info }

// Size returns the length of the file in bytes.
func (r *ReadOnly) Size() int64 { return r.size }

// Buckets returns the bucket declarations that the last node recorded in the file.
func (r *ReadOnly) Buckets() []*Bucket { return r.buckets }

// View runs fn in a read transaction. It returns ErrCorrupt if the file is damaged.
func (r *ReadOnly) View(ctx context.Context, fn func(Reader) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return readRows(r.db, nil, func(rd *txReader) error { return fn(rd) })
}

// Close closes the file.
func (r *ReadOnly) Close() error { return r.db.Close() }

// FreeBytes returns the free space inside the file in bytes, or 0 if it is unknown.
func (r *ReadOnly) FreeBytes() (free int64) {
	_ = r.walk(func(w *page.Walk) error { // FreeBytes returns 0 then
		n, err := w.Freelist()
		free = int64(n) * PageSize
		return err
	})
	return free
}

// checkPages checks all pages with bounded plain reads; it does not use the map.
func (r *ReadOnly) checkPages(ctx context.Context) error {
	return r.walk(func(w *page.Walk) error {
		w.Each = func(uint64) error { return context.Cause(ctx) }
		return w.All()
	})
}

func (r *ReadOnly) walk(fn func(*page.Walk) error) error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	w, err := page.NewWalk(f, r.size)
	if err == nil {
		err = fn(w)
	}
	return errors.Join(err, f.Close())
}

// exportLine is one row of an export. The key is in hexadecimal, so that lines sort as rows do, and
// the value in base64.
type exportLine struct {
	Bucket string   `json:"bucket,omitzero"`
	Sub    hexBytes `json:"sub,omitempty"` // name of the sub-bucket, if the bucket has any
	Key    hexBytes `json:"key,omitempty"`
	Value  []byte   `json:"value,omitempty"`
}

// hexBytes is marshaled as hexadecimal text.
type hexBytes []byte

// MarshalText implements encoding.TextMarshaler.
func (h hexBytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.AppendDecode(nil, text)
	return err
}

// Export writes every row of a file as NDJSON {"bucket", "sub", "key", "value"} and returns the
// number of rows. Buckets and keys are in byte order, so equal states have equal exports. It
// returns ErrLocked if a process has the file open for writing. progress, which may be nil, counts
// bytes of keys and values against the size of the file.
func Export(ctx context.Context, path string, w io.Writer, progress func(done, total int64)) (rows uint64, err error) {
	r, err := OpenReader(path)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(w, copyChunk)
	var done int64
	write := func(b *Bucket, k, v []byte) error {
		l := exportLine{Bucket: b.Name, Key: k, Value: v}
		if b.parent != nil {
			l.Bucket, l.Sub = b.parent.Name, hexBytes(b.Name)
		}
		if rows, done = rows+1, done+int64(len(k)+len(v)); progress != nil && rows%4096 == 0 {
			progress(min(done, r.Size()), r.Size())
		}
		if err := json.MarshalWrite(out, l); err != nil {
			return err
		}
		return out.WriteByte('\n')
	}
	err = r.rows(ctx, write)
	if err == nil {
		err = out.Flush()
	}
	if err == nil && progress != nil {
		progress(r.Size(), r.Size())
	}
	return rows, closing(r, err)
}

// rows calls fn with every row of the declared buckets, in byte order.
func (r *ReadOnly) rows(ctx context.Context, fn func(b *Bucket, k, v []byte) error) error {
	buckets := append([]*Bucket{}, r.buckets...)
	return r.View(ctx, func(rd Reader) error {
		for _, b := range buckets {
			for leaf := range leaves(rd, b) {
				for k, v := range rd.Range(leaf, nil, nil) {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					if err := fn(leaf, k, v); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}
