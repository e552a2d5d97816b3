package registry

import (
	"fmt"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/store"
)

// logReader reads the stored log for the verifier, within one read transaction. A row that does not decode is an error of
// the log, never a panic of its table.
type logReader struct {
	r     store.Reader
	codec codec
}

var _ rverify.LogReader = logReader{}

// NewLog is the log as r sees it. It may be used until r's transaction ends.
func NewLog(r store.Reader) rverify.LogReader { return logReader{r: r, codec: newCodec()} }

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

// Head is HEAD as stored; the zero Head for an empty log.
func (l logReader) Head() (record.Head, error) {
	head, err := decoded(l.r, bMeta, keyHead, store.CBOR[headRow]())
	return head.record(), err
}

// Entry gives the exact entry of a version.
func (l logReader) Entry(v uint64) ([]byte, error) {
	return l.bytes(bEntry, v)
}

// Payload gives the canonical payload of a version.
func (l logReader) Payload(v uint64) ([]byte, error) {
	packed, err := l.bytes(bPayload, v)
	if err != nil {
		return nil, err
	}
	return l.codec.unpack(packed)
}

func (l logReader) bytes(b *store.Bucket, v uint64) ([]byte, error) {
	raw := l.r.Get(b, store.U64().Append(nil, v))
	if raw == nil {
		return nil, rverify.ErrMissing
	}
	return raw, nil
}

// Audit walks the records from one sequence number to another, both included.
func (l logReader) Audit(from, to uint64) iter.Seq2[uint64, []byte] {
	seqs := store.U64()
	return func(yield func(uint64, []byte) bool) {
		for k, raw := range l.r.Range(bAudit, seqs.Append(nil, from), seqs.Append(nil, to+1)) {
			if seq, err := seqs.Decode(k); err != nil || !yield(seq, raw) {
				return
			}
		}
	}
}

// AuditHead is the last record's number and digest, as stored.
func (l logReader) AuditHead() (seq uint64, head b3.Digest, err error) {
	ref, err := decoded(l.r, bMeta, keyAuditHead, store.CBOR[AuditRef]())
	return ref.Seq, ref.B3, err
}

// Epochs walks the epochs as stored: the version that installed the set, then the set.
func (l logReader) Epochs() iter.Seq2[uint64, []byte] {
	keys := store.U32()
	return func(yield func(uint64, []byte) bool) {
		for k, raw := range l.r.Range(bEpoch, nil, nil) {
			if epoch, err := keys.Decode(k); err != nil || !yield(uint64(epoch), raw) {
				return
			}
		}
	}
}
