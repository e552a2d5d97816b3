package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"
)

// An accepted manifest is unchanged after it is written and parsed again. Any other input returns
// ErrCorrupt or ErrSchema.
func FuzzManifest(f *testing.F) {
	f.Add(
		[]byte(`{"format":1,"file":"a.db","seq":7,"at":"2026-03-01T12:00:00Z","buckets":{"meta":1},"compacted":true}`),
	)
	f.Add([]byte(`{"format":1,"versions":{"ronbox":"1"},"cas":{"count":1,"bytes":2,"list_b3":""}}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseManifest(raw)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrSchema) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		one, err := json.Marshal(m, json.Deterministic(true))
		if err != nil {
			return // such as a year that JSON has no form for
		}
		again, err := parseManifest(one)
		if err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		if two, err := json.Marshal(again, json.Deterministic(true)); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%q, then %q, %v", one, two, err)
		}
	})
}

// An accepted position is within bounds and is written as it was read.
func FuzzPosition(f *testing.F) {
	f.Add(position{seq: 7, at: 8, auditSeq: 9, auditFirst: 1}.row(), auditKey(3))
	f.Add([]byte{}, []byte(nil))
	f.Add(position{auditSeq: auditRows + 7}.row(), []byte(nil))
	f.Fuzz(func(t *testing.T, raw, first []byte) {
		p, err := parsePosition(raw)
		if err != nil {
			return
		}
		if len(first) == 0 {
			first = nil
		}
		if err := p.readFirst(first); err != nil {
			return
		}
		if p.auditFirst < 1 || p.auditFirst > p.auditSeq+1 || !bytes.HasPrefix(p.row(), raw) {
			t.Errorf("%x, %x: %+v", raw, first, p)
		}
	})
}

// A file with a full ring but without a recorded start is assumed to have kept auditRows rows.
func TestOldRing(t *testing.T) {
	for seq, want := range map[uint64]uint64{0: 1, 1: 1, auditRows: 1, auditRows + 1: 2, auditRows + 50: 51} {
		p := position{auditSeq: seq}
		if err := p.readFirst(nil); err != nil || p.auditFirst != want {
			t.Errorf("of %d rows the first is %d, %v; want %d", seq, p.auditFirst, err, want)
		}
	}
	path := counted(t, 1)
	db, err := openBolt(path, &opening{})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(metaBucket.Name)).Put(keyAudit1, auditKey(9)) })
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(path); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a first row beyond the last: %v", err)
	}
}
