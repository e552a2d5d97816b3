package tables

import (
	"context"
	"fmt"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// Log reads the stored log within one read transaction. A row that does not decode is an
// error, never a panic.
type Log struct {
	R     store.Reader
	Codec Codec
}

var _ rverify.LogReader = Log{}

func decoded[V any](r store.Reader, b *store.Bucket, key string, value store.Value[V]) (v V, err error) {
	raw := r.Get(b, []byte(key))
	if raw == nil {
		return v, nil
	}
	if v, err = value.Decode(raw); err != nil {
		return v, fmt.Errorf("%s %s: %w", b.Name, key, err)
	}
	return v, nil
}

// Head returns the stored HEAD, the zero Head for an empty log.
func (l Log) Head() (record.Head, error) {
	return decoded(l.R, MetaBucket, KeyHead, store.CBOR[record.Head]())
}

// Entry returns the exact entry of a version.
func (l Log) Entry(v uint64) ([]byte, error) {
	return l.bytes(EntryBucket, v)
}

// Payload returns the canonical payload of a version.
func (l Log) Payload(v uint64) ([]byte, error) {
	packed, err := l.bytes(PayloadBucket, v)
	if err != nil {
		return nil, err
	}
	return l.Codec.Unpack(packed)
}

func (l Log) bytes(b *store.Bucket, v uint64) ([]byte, error) {
	raw := l.R.Get(b, store.U64().Append(nil, v))
	if raw == nil {
		return nil, rverify.ErrMissing
	}
	return raw, nil
}

// Audit yields the records between two sequence numbers, both included.
func (l Log) Audit(from, to uint64) iter.Seq2[uint64, []byte] {
	return l.numbered(AuditBucket, store.U64().Append(nil, from), store.U64().Append(nil, to+1))
}

// numbered yields rows with numeric keys, up to the first other key.
func (l Log) numbered(b *store.Bucket, from, to []byte) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for k, raw := range l.R.Range(b, from, to) {
			if n, err := store.U64().Decode(k); err != nil || !yield(n, raw) {
				return
			}
		}
	}
}

// AuditHead returns the stored number and digest of the last record.
func (l Log) AuditHead() (seq uint64, head b3.Digest, err error) {
	ref, err := decoded(l.R, MetaBucket, KeyAuditHead, store.CBOR[AuditRef]())
	return ref.Seq, ref.B3, err
}

// Epochs yields the stored epochs: the version that installed the set, then the set.
func (l Log) Epochs() iter.Seq2[uint64, []byte] {
	keys := store.U32()
	return func(yield func(uint64, []byte) bool) {
		for k, raw := range l.R.Range(EpochBucket, nil, nil) {
			if epoch, err := keys.Decode(k); err != nil || !yield(uint64(epoch), raw) {
				return
			}
		}
	}
}

// Followed reports whether the log is a copy of that of another node, without its audit chain.
func (l Log) Followed() bool { return l.R.Get(MetaBucket, []byte(KeyFollowed)) != nil }

// Horizon returns where a pruned log begins, nil if the log is complete. It has no statement while
// a copy has no checkpoint: the copy may not have all that the statement is about.
func (l Log) Horizon() (*rverify.Horizon, error) {
	first, err := decoded(l.R, MetaBucket, KeyMin, U64Value())
	if err != nil || first <= 1 {
		return nil, err
	}
	audit, err := decoded(l.R, MetaBucket, KeyAuditMin, U64Value())
	h := &rverify.Horizon{
		Min: first, Audit: audit, Items: func() (record.Items, error) { return l.set(first) },
	}
	if !l.Followed() || l.Latest() != nil {
		h.Note = l.R.Get(RetentionBucket, store.U64().Append(nil, first))
	}
	return h, err
}

// set returns the stored set of items of a version.
func (l Log) set(v uint64) (record.Items, error) {
	head, err := decoded(l.R, SnapBucket, string(setKeys().Append(nil, SetKey{v, 0})), store.CBOR[SetHeader]())
	if err != nil {
		return record.Items{}, err
	}
	var chunks [][]byte
	var size int64
	for part := range head.Chunks {
		chunks = append(chunks, l.R.Get(SnapBucket, setKeys().Append(nil, SetKey{v, uint16(part + 1)})))
		size += int64(len(chunks[part]))
	}
	if size != head.Bytes {
		return record.Items{}, fmt.Errorf("%d bytes, the header says %d", size, head.Bytes)
	}
	return UnpackSet(l.Codec, head, chunks)
}

// NewSource returns the log in the transaction of r, with its tree. It is valid until the
// transaction ends.
func NewSource(r store.Reader) export.Source { return Log{R: r, Codec: NewCodec()} }

// TreeSize returns the number of entries that the tiles cover.
func (l Log) TreeSize() (uint64, error) {
	row, err := decoded(l.R, MetaBucket, KeyTree, store.CBOR[TreeRow]())
	return row.Size, err
}

// Tile returns the stored bytes of a tile, nil if it does not exist.
func (l Log) Tile(at logtree.At) []byte { return l.R.Get(TileBucket, tileKeys().Append(nil, at)) }

// Notes yields the archived checkpoints, then the latest.
func (l Log) Notes() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for size, raw := range l.numbered(CheckpointBucket, nil, nil) {
			if !yield(size, raw) {
				return
			}
		}
		if raw := l.Latest(); raw != nil {
			tree, _ := checkpoint.TreeOf(raw) // the check of the signature finds a wrong text
			yield(tree.Size, raw)
		}
	}
}

// Latest returns the latest checkpoint, nil before the first.
func (l Log) Latest() []byte { return l.R.Get(MetaBucket, []byte(KeyCheckpoint)) }

// sets checks the stored sets of items against the signed roots. Sets before the horizon are about
// to be deleted.
func (l Log) sets() *rverify.Problem {
	bad := func(v uint64, format string, args ...any) *rverify.Problem {
		return &rverify.Problem{
			Kind: rverify.KindTree, Version: v, Detail: "kept items: " + fmt.Sprintf(format, args...),
		}
	}
	h, err := l.Horizon()
	if err != nil {
		return bad(0, "%v", err)
	}
	var from []byte
	if h != nil {
		from = setKeys().Append(nil, SetKey{h.Min, 0})
	}
	var last SetKey
	for k, row := range l.R.Range(SnapBucket, from, nil) {
		key, err := setKeys().Decode(k)
		if err != nil {
			return bad(0, "%v", err)
		}
		before := last
		last = key
		if key.Part != 0 {
			if _, err := l.Codec.Unpack(row); err != nil ||
				key.Part > 1 && before != (SetKey{key.Version, key.Part - 1}) {
				return bad(key.Version, "part %d is none (%v)", key.Part, err)
			}
			continue
		}
		items, err := l.set(key.Version)
		if err != nil {
			return bad(key.Version, "%v", err)
		}
		raw, err := l.Payload(key.Version)
		if err != nil {
			return bad(key.Version, "%v", err)
		}
		if p, err := record.ParsePayload(raw); err != nil || p.ItemsRoot != items.Root() {
			return bad(key.Version, "root %s is not the one that was signed", items.Root())
		}
	}
	return nil
}

// Verify checks the whole registry in the transaction of r: the log, its tree with the checkpoints,
// the stored sets, and the rows beside the log. The report names a fault; the error is the cause of
// ctx.
func Verify(ctx context.Context, r store.Reader, o rverify.Options) (rverify.Report, error) {
	l := Log{R: r, Codec: NewCodec()}
	report, err := rverify.VerifyWhole(ctx, l, l, o)
	if err != nil || !report.OK {
		return report, err
	}
	report.Problem = l.sets()
	if report.Problem == nil {
		report.Problem, err = l.sides(ctx, report.Head)
	}
	report.OK = report.Problem == nil && err == nil
	return report, err
}

// Check returns Verify as a step of the check of a file. It stores the report in out.
func Check(ctx context.Context, o rverify.Options, out **rverify.Report) store.Check {
	return store.Check{Name: "registry", Run: func(r store.Reader) error {
		report, err := Verify(ctx, r, o)
		if err != nil {
			return err
		}
		*out = &report
		if report.Problem != nil {
			return report.Problem
		}
		return nil
	}}
}
