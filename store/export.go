package store

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"

	"github.com/go-json-experiment/json"
)

// exportLine is one row of an export: the key in hexadecimal, so that lines sort as rows do, the value in base64.
type exportLine struct {
	Bucket string   `json:"bucket,omitzero"`
	Sub    hexBytes `json:"sub,omitempty"` // name of the sub-bucket, if the bucket has any
	Key    hexBytes `json:"key,omitempty"`
	Value  []byte   `json:"value,omitempty"`
}

// hexBytes are bytes whose text is hexadecimal.
type hexBytes []byte

// MarshalText is the text form.
func (h hexBytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText reads it.
func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.AppendDecode(nil, text)
	return err
}

// Export writes every row of a file that no process has open for writing (ErrLocked), a stopped node's or a snapshot, as NDJSON
// {"bucket", "sub", "key", "value"}: buckets and keys in byte order, so equal states give equal exports. It gives the number of rows.
// Progress, which may be nil, counts bytes of keys and values against the size of the file.
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

// rows hands every row of the declared buckets to fn, in byte order.
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
