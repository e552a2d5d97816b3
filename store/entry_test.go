package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"ronbox/appliance/b3"
)

// encode returns e as an entry of this program.
func (e *entry) encode() []byte {
	raw := appendEntryHead(nil, e)
	for _, o := range e.ops {
		raw = appendOp(raw, o)
	}
	sealEntry(raw)
	return raw
}

func someEntry() *entry {
	return &entry{
		nonce: [nonceLen]byte{1, 2, 3},
		prev:  b3.Sum([]byte("before")),
		from:  position{seq: 6, at: 7, auditSeq: 8, auditFirst: 1},
		to:    position{seq: 7, at: 9, auditSeq: 9, auditHead: b3.Sum(nil), auditFirst: 2},
		ops: []op{
			{kind: opPut, bucket: "test/rows", key: []byte("k"), value: []byte("v")},
			{kind: opPut, bucket: "test/rows", key: []byte("empty"), value: []byte{}},
			{kind: opPut, bucket: "test/subs", sub: "s", key: []byte("k"), value: []byte("v")},
			{kind: opDelete, bucket: "audit", key: auditKey(1)},
			{kind: opDrop, bucket: "test/subs", sub: "s"},
			{kind: opClear, bucket: "test/rows"},
		},
	}
}

// An accepted entry is encoded as it was read. Any other input returns ErrCorrupt or ErrFormat.
func FuzzEntry(f *testing.F) {
	raw := someEntry().encode()
	f.Add(raw)
	f.Add(raw[:entryLen])
	f.Add(raw[:entryLen+3])
	f.Add([]byte{entryFormat + 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= entryLen {
			raw = bytes.Clone(raw)
			sealEntry(raw)
		}
		e, err := parseEntry(raw, MaxEntry)
		if err != nil {
			if errors.Is(err, ErrCorrupt) == errors.Is(err, ErrFormat) {
				t.Errorf("%x: %v", raw, err)
			}
			return
		}
		if again := e.encode(); !bytes.Equal(again, raw) {
			t.Errorf("%x, then %x", raw, again)
		}
		if nonce, ok := EntryNonce(raw); !ok || nonce != e.nonce {
			t.Errorf("%x: nonce %x, %t", raw, nonce, ok)
		}
	})
}

// An entry with one other bit is damaged, or of another release.
func TestFlippedEntries(t *testing.T) {
	raw := someEntry().encode()
	if err := CheckEntry(raw); err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] ^= 0x10
		want := ErrCorrupt
		if i == 0 {
			want = ErrFormat
		}
		if _, err := parseEntry(raw, MaxEntry); !errors.Is(err, want) {
			t.Errorf("byte %d: %v", i, err)
		}
		raw[i] ^= 0x10
	}
}

// An op that no group can have written makes an entry damaged.
func TestDamagedEntries(t *testing.T) {
	key := []byte("k")
	long := strings.Repeat("k", MaxKey+1)
	for name, o := range map[string]op{
		"unknown kind":      {kind: 5, bucket: "b", key: key},
		"put without key":   {kind: opPut, bucket: "b"},
		"delete with value": {kind: opDelete, bucket: "b", key: key, value: key},
		"drop without sub":  {kind: opDrop, bucket: "b"},
		"drop with key":     {kind: opDrop, bucket: "b", sub: "s", key: key},
		"clear of a sub":    {kind: opClear, bucket: "b", sub: "s"},
		"no bucket":         {kind: opPut, key: key},
		"a local row":       {kind: opPut, bucket: localBucket.Name, key: keyApplied, value: key},
		"long key":          {kind: opPut, bucket: "b", key: []byte(long)},
		"long sub":          {kind: opDrop, bucket: "b", sub: long},
		"long value":        {kind: opPut, bucket: "b", key: key, value: make([]byte, MaxValue+1)},
	} {
		if _, err := parseEntry((&entry{ops: []op{o}}).encode(), MaxEntry); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseEntry(make([]byte, MaxEntry+1), MaxEntry); !errors.Is(err, ErrFormat) {
		t.Errorf("format 0: %v", err)
	}
	large := append([]byte{entryFormat}, make([]byte, MaxEntry)...)
	if _, err := parseEntry(large, MaxEntry); !errors.Is(err, ErrCorrupt) {
		t.Errorf("more than MaxEntry: %v", err)
	}
	if _, ok := EntryNonce(nil); ok {
		t.Error("no bytes have a nonce")
	}
}
